"""A broker that leads partitions is killed with SIGKILL, and started again once the others lead.

Every moment is what a client sees in Metadata, or when its records were acknowledged.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from examples.flights.loader import LoadedDay
from storage_engine.core.ids import TopicPartition

SECONDS_AWAY = 3.0
"""How long the broker stays away after the others took over, so that it has to catch up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """Leader and in-sync replicas of a partition as Metadata has them; leader -1: none."""

    leader: int
    in_sync: Sequence[int]


View = Mapping[TopicPartition, PartitionView]


class BrokerControl(Protocol):
    """Kills and starts brokers; implemented by LocalCluster."""

    def kill_broker(self, broker_id: int) -> None: ...

    def start_broker(self, broker_id: int) -> bool: ...


class Failover:
    """The timeline; moments are of the monotonic clock, None until they come."""

    def __init__(self, cluster: BrokerControl, on_event: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._on_event = on_event
        self.broker_id: int | None = None
        self.led: list[TopicPartition] = []
        self.killed_at: float | None = None
        self.led_again_at: float | None = None
        self.started_at: float | None = None
        self.in_sync_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether the broker is back in every in-sync set."""
        return self.in_sync_at is not None

    def kill(self, view: View) -> None:
        """Kills the broker that leads the most partitions."""
        leaders = [state.leader for state in view.values()]
        self.broker_id = max(sorted(set(leaders)), key=leaders.count)
        self.led = sorted(part for part, state in view.items() if state.leader == self.broker_id)
        self.killed_at = time.monotonic()
        self._cluster.kill_broker(self.broker_id)
        names = ", ".join(map(str, self.led))
        self._on_event(f"broker {self.broker_id}, leader of {names}, killed with SIGKILL")

    def step(self, view: View) -> None:
        """Checks the newest metadata and does the next step."""
        if self.broker_id is None:
            return
        now = time.monotonic()
        if self.led_again_at is None:
            if all(view[part].leader not in (-1, self.broker_id) for part in self.led):
                self.led_again_at = now
                self._on_event("its partitions have new leaders: " + _leaders(view, self.led))
        elif self.started_at is None:
            if now - self.led_again_at >= SECONDS_AWAY:
                self._cluster.start_broker(self.broker_id)
                self.started_at = time.monotonic()
                self._on_event(f"broker {self.broker_id} started again on its data, and serves")
        elif self.in_sync_at is None and all(
            self.broker_id in state.in_sync for state in view.values()
        ):
            self.in_sync_at = now
            self._on_event(f"broker {self.broker_id} is back in sync with every partition")

    def rows(self, days: Sequence[LoadedDay]) -> Iterator[tuple[str, str]]:
        """The timeline as the rows of a table; `days` are the producer's."""
        killed_at = self.killed_at
        if killed_at is None:
            return
        yield "broker killed", f"{self.broker_id}, leader of {', '.join(map(str, self.led))}"
        held_up = first_acknowledged_after(days, killed_at)
        if held_up is not None:
            yield (
                "producer held up",
                f"{held_up.acknowledged_at - killed_at:.1f} s after the kill until a whole day was"
                " acknowledged by all in-sync replicas again",
            )
        for name, moment in (
            ("new leaders", self.led_again_at),
            ("broker serves again", self.started_at),
            ("all replicas in sync", self.in_sync_at),
        ):
            if moment is not None:
                yield name, f"{moment - killed_at:.1f} s after the kill"


def first_acknowledged_after(days: Sequence[LoadedDay], moment: float) -> LoadedDay | None:
    """The first day whose acknowledgement came after `moment`."""
    return next((day for day in days if day.acknowledged_at > moment), None)


def _leaders(view: View, parts: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{part} on broker {view[part].leader}" for part in parts)
