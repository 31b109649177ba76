"""Reads consumer groups: their states, and how far each is behind.

A group's coordinator tells its lag. The end of a partition is that of a replica here, which is
behind by less than a fetch where this broker follows; of partitions without a replica here leaders
are asked (`end_offsets`), and only the lag in records is told.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from storage_engine.broker.coordinators.kinds import GroupCoordinators
from storage_engine.broker.metrics.end_offsets import EndOffsets
from storage_engine.broker.metrics.exposition import Samples, escaped
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.group import Group, GroupState
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock

OFFSETS_PER_STEP = 50
"""Committed offsets that are read between two yields."""

OFFSETS_MAX = 10_000
"""Offsets that a scrape tells; beyond it groups are only counted. 10,000 take 3 MB."""

GROUPS_MAX = 5_000
"""Groups that a scrape tells of one by one: their names come from clients."""

GROUPS_PER_STEP = 200
"""Groups between two yields, which takes some 0.5 ms."""

_STATES = {
    GroupState.EMPTY: "empty",
    GroupState.PREPARING: "preparingrebalance",
    GroupState.COMPLETING: "completingrebalance",
    GroupState.STABLE: "stable",
}
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_Place = tuple[TopicPartition, int]


class GroupFigures:
    """The groups that a broker coordinates."""

    def __init__(
        self,
        coordinators: GroupCoordinators,
        replicas: ReplicaManager,
        ends: EndOffsets,
        clock: Clock,
    ) -> None:
        self._ends = ends
        self._coordinators = coordinators
        self._replicas = replicas
        self._clock = clock
        self._times: dict[_Place, int | None] = {}
        """The times of the records that groups were found at by the last scrape: who does not move
        costs no read."""

    def read(self, samples: Samples) -> Iterator[None]:
        states: Counter[GroupState] = Counter()
        times: dict[_Place, int | None] = {}
        now_ms, left, count = self._clock.wall_ms(), OFFSETS_MAX, 0
        for coordinator in list(self._coordinators):
            if not isinstance(coordinator, GroupCoordinator):
                # It is loading: its groups are not known yet.
                continue
            for group in list(coordinator.groups.values()):
                states[group.state] += 1
                count += 1
                if count % GROUPS_PER_STEP == 0:
                    yield
                if count > GROUPS_MAX:
                    continue
                members = len(group.members)
                samples.add("kafka_consumergroup_members", members, group.group_id)
                for done in self._read_offsets(samples, group, times, now_ms, left):
                    left -= done
                    yield
        self._times = times
        self._ends.ask()
        samples.add(_GROUPS, count)
        samples.add(f"{_GROUPS}dead", 0)
        for state, name in _STATES.items():
            samples.add(f"{_GROUPS}{name}", states[state])

    def _read_offsets(
        self,
        samples: Samples,
        group: Group,
        times: dict[_Place, int | None],
        now_ms: int,
        most: int,
    ) -> Iterator[int]:
        """Yields how many were read since the last yield."""
        add_offset = samples.adder("kafka_consumergroup_current_offset")
        add_lag = samples.adder("kafka_consumergroup_lag")
        add_seconds = samples.adder("kafka_consumergroup_lag_seconds")
        name = escaped(group.group_id)
        committed = iter(group.offsets.committed.items())
        while some := list(islice(committed, min(OFFSETS_PER_STEP, most))):
            for tp, record in some:
                label = f'{{consumergroup="{name}",topic="{tp.topic}",partition="{tp.partition}"}} '
                add_offset(f"{label}{record.offset}\n")
                partition = self._replicas.get(tp)
                end = self._ends.of(tp) if partition is None else partition.high_watermark
                if end is None:
                    continue
                lag = max(0, end - record.offset)
                add_lag(f"{label}{lag}\n")
                if not lag:
                    add_seconds(f"{label}0\n")
                if not lag or partition is None:
                    continue
                place = tp, record.offset
                time_ms = self._times[place] if place in self._times else _time_of(partition, place)
                times[place] = time_ms
                if time_ms is not None:
                    add_seconds(f"{label}{max(0, now_ms - time_ms) / 1000}\n")
            most -= len(some)
            yield len(some)


def _time_of(partition: HostedPartition, place: _Place) -> int | None:
    """When the first record was written that the group has not read."""
    _, offset = place
    return partition.log.reads.time_of(max(offset, partition.log.log_start_offset))
