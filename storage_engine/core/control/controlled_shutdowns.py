"""Brokers in controlled shutdown, and the partitions that they still have to give up.

Partitions are given up in waves, those that the broker leads first; a wave begins when the leaders
of the wave before know that they lead. So a partition is without a leader for no longer than its
wave takes, however many the broker led. Source: R-CTL9.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from storage_engine.core.control.controlled_cluster import ControlledCluster, ControlledPartition
from storage_engine.core.control.controller_events import (
    ControlledShutdownRequested,
    ShutdownProgress,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.ids import BrokerId, TopicPartition

LEAST_IN_WAVE = 50
"""The smallest size of a wave: few enough that brokers take over these roles between two requests
of a producer."""

MOST_WAVES = 50
"""The most waves for one broker: one with very many partitions moves more of them at a time, since
somebody waits for its shutdown."""


@dataclass(slots=True)
class _Departure:
    """The shutdown of one broker."""

    waiting: deque[TopicPartition]
    """Partitions that no wave has had so far."""
    wave_size: int
    wave: set[TopicPartition] = field(default_factory=set)
    waiting_when_told: int = -1
    """How many waited when the progress was reported last."""


class ControlledShutdowns:
    """All brokers in controlled shutdown."""

    def __init__(self, cluster: ControlledCluster, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._departures: dict[BrokerId, _Departure] = {}

    @property
    def leaving(self) -> Set[BrokerId]:
        return self._departures.keys()

    def begin(self, event: ControlledShutdownRequested) -> None:
        """Begin to move all replicas away from the broker. A repeated request begins again."""
        broker = self._cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        held = [p for p in self._cluster.partitions() if event.broker in p.assignment.replicas]
        led = [p.name for p in held if p.state is not None and p.state.leader == event.broker]
        others = {p.name for p in held}.difference(led)
        waiting = deque([*led, *sorted(others)])
        size = max(LEAST_IN_WAVE, -(-len(waiting) // MOST_WAVES))
        self._departures[event.broker] = _Departure(waiting=waiting, wave_size=size)

    def forget(self, brokers: Iterable[BrokerId]) -> None:
        """Forget brokers that are gone, or that are back as other incarnations."""
        for broker in brokers:
            self._departures.pop(broker, None)

    def next_wave(self) -> list[TopicPartition]:
        """Return the partitions that begin to move now; none while a wave is under way."""
        begun: list[TopicPartition] = []
        for departure in self._departures.values():
            departure.wave = {p for p in departure.wave if not self._leadership_is_delivered(p)}
            if departure.wave:
                continue
            while departure.waiting and len(departure.wave) < departure.wave_size:
                departure.wave.add(departure.waiting.popleft())
            begun += sorted(departure.wave)
        return begun

    def progress(self) -> Iterator[ShutdownProgress]:
        """Return for each broker in controlled shutdown the partitions that it has not given up
        though another replica could lead them, or whose new leader does not know it; while some
        wait, once a wave only: all partitions are looked at for it."""
        for broker in sorted(self._departures):
            departure = self._departures[broker]
            if departure.waiting and len(departure.waiting) == departure.waiting_when_told:
                continue
            departure.waiting_when_told = len(departure.waiting)
            waiting = map(self._cluster.partition, departure.waiting)
            remaining = {p.name for p in waiting if p is not None and p.state is not None}
            remaining.update(p.name for p in self._cluster.partitions() if self._holds(broker, p))
            if not departure.waiting:
                # The broker stops when nothing remains. If it is the controller, nobody tells the
                # new leaders before there is another one.
                remaining.update(p for p in departure.wave if self._is_leader_untold(p))
            yield ShutdownProgress(broker=broker, remaining=tuple(sorted(remaining)))

    def _holds(self, broker: BrokerId, partition: ControlledPartition) -> bool:
        """Return True when the broker leads a partition that another replica could lead."""
        state = partition.state
        if state is None or state.leader != broker:
            return False
        if self._cluster.is_deleting(partition.name.topic):
            return False
        live = self._cluster.running(partition) - self.leaving
        return any(replica != broker and replica in live for replica in state.isr)

    def _leadership_is_delivered(self, name: TopicPartition) -> bool:
        """Return True when nothing is to be decided, written or sent about the partition's
        leadership."""
        if not self._cluster.is_settled(name):
            return False
        return not self._is_leader_untold(name)

    def _is_leader_untold(self, name: TopicPartition) -> bool:
        """Return True while the partition's leader has not confirmed its leadership."""
        partition = self._cluster.partition(name)
        if partition is None or partition.state is None:
            return False
        return self._deliveries.owes_leadership(partition.state.leader, name)
