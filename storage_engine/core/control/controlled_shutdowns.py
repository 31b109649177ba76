"""Brokers that are leaving, and the partitions that they have yet to give up.

Rule: these go in waves, the led ones first; the next wave begins when the leaders of the last one
know that they lead. So a partition is without a leader for as long as its wave takes, however many
the broker led. Source: R-CTL9.
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
"""So few that brokers take their roles between two requests of a producer."""

MOST_WAVES = 50
"""A broker of very many partitions moves more of them at a time: it is waited for."""


@dataclass(slots=True)
class _Departure:
    """The shutdown of one broker."""

    waiting: deque[TopicPartition]
    """Partitions that have not had their turn."""
    wave_size: int
    wave: set[TopicPartition] = field(default_factory=set)


class ControlledShutdowns:
    """The brokers that asked to leave."""

    def __init__(self, cluster: ControlledCluster, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._departures: dict[BrokerId, _Departure] = {}

    @property
    def leaving(self) -> Set[BrokerId]:
        return self._departures.keys()

    def begin(self, event: ControlledShutdownRequested) -> None:
        """The broker is to give up all its replicas. Asked for again, that begins again."""
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
        """They are gone, or have come back as other incarnations."""
        for broker in brokers:
            self._departures.pop(broker, None)

    def next_wave(self) -> list[TopicPartition]:
        """The partitions that begin to move now; none while a wave is not over."""
        begun: list[TopicPartition] = []
        for departure in self._departures.values():
            departure.wave = {p for p in departure.wave if not self._leadership_is_delivered(p)}
            if departure.wave:
                continue
            while departure.waiting and len(departure.wave) < departure.wave_size:
                departure.wave.add(departure.waiting.popleft())
            begun += departure.wave
        return begun

    def progress(self) -> Iterator[ShutdownProgress]:
        """For each broker that is leaving: which partitions it has not given up though another
        could lead them."""
        for broker in sorted(self._departures):
            waiting = map(self._cluster.partition, self._departures[broker].waiting)
            remaining = {p.name for p in waiting if p is not None and p.state is not None}
            remaining.update(p.name for p in self._cluster.partitions() if self._holds(broker, p))
            yield ShutdownProgress(broker=broker, remaining=tuple(sorted(remaining)))

    def _holds(self, broker: BrokerId, partition: ControlledPartition) -> bool:
        """Whether the broker leads a partition that another could lead."""
        state = partition.state
        if state is None or state.leader != broker:
            return False
        if self._cluster.is_deleting(partition.name.topic):
            return False
        live = self._cluster.running(partition) - self.leaving
        return any(replica != broker and replica in live for replica in state.isr)

    def _leadership_is_delivered(self, name: TopicPartition) -> bool:
        """Whether nothing is decided, written or to be sent about the partition's leadership."""
        if not self._cluster.is_settled(name):
            return False
        partition = self._cluster.partition(name)
        if partition is None or partition.state is None:
            return True
        return not self._deliveries.owes_leadership(partition.state.leader, name)
