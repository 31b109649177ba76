"""Consumer groups as the watcher sees them: their lag, in records and in time.

Each look lists all groups, and asks for the offsets of as many of them as have some thousands of
partitions together; the others follow in the next looks. Looks cost at most a fortieth of the
time, like the watcher's own. Source: R-CON4.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace_console.cluster.broker_lines import Ask, Question
from headrace_console.cluster.group_marks import GroupMarks, GroupReading, MarkKey
from headrace_console.cluster.snapshot import Ends, SeenGroup
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import CorruptRecordError, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import (
    BY_NAME,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)
from storage_engine.protocol.messages.list_groups import API as LIST_GROUPS
from storage_engine.protocol.messages.list_groups import ListGroupsRequest
from storage_engine.protocol.messages.offset_fetch import API as OFFSET_FETCH
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header

MOST_ROWS = 5_000
"""About the most committed offsets that one look asks for."""
UNKNOWN_ROWS = 100
"""The number of offsets assumed for a group whose offsets were not fetched yet."""
MOST_ASKED = 50
"""The most batches whose timestamp one look asks for."""
_SHARE = 40
_LONGEST_S = 60.0
WITHOUT_MEMBERS = ("Empty", "Dead")


class GroupLooks:
    """The last known state and lag of each group. Used by its watcher's thread only."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._marks = GroupMarks()
        self._seen: dict[str, SeenGroup] = {}
        self._rows: dict[str, int] = {}
        self._had_members: set[str] = set()
        self._turn: list[str] = []
        self._next_s = 0.0
        self._is_known = False

    def look(
        self,
        metadata: ClusterMetadata,
        ends: Mapping[TopicPartition, Ends],
        well: Sequence[int],
        at_ms: int,
    ) -> Mapping[str, SeenGroup] | None:
        """Return all groups that this user may see; None until a broker has listed groups."""
        began_s = time.monotonic()
        if began_s >= self._next_s:
            cost_s = time.process_time()
            self._look(metadata, ends, well, at_ms)
            cost_s = time.process_time() - cost_s
            self._next_s = began_s + min(_LONGEST_S, _SHARE * cost_s)
        return dict(self._seen) if self._is_known else None

    def _look(
        self,
        metadata: ClusterMetadata,
        ends: Mapping[TopicPartition, Ends],
        well: Sequence[int],
        at_ms: int,
    ) -> None:
        listed = self._list(well)
        if listed is None:
            return
        self._is_known = True
        states, silent = listed
        for group, seen in self._seen.items():
            if seen.coordinator in silent and group not in states:
                states[group] = (seen.state, seen.coordinator)
        self._had_members &= states.keys()
        self._had_members |= {
            group for group, (state, _) in states.items() if state not in WITHOUT_MEMBERS
        }
        self._marks.keep_only(states)
        self._rows = {group: rows for group, rows in self._rows.items() if group in states}
        self._seen = {
            group: replace(seen, state=states[group][0], coordinator=states[group][1])
            for group, seen in self._seen.items()
            if group in states
        }
        found = self._offsets({g: states[g][1] for g in self._chosen(states) if g in states})
        readings = {group: _readings(offsets, ends) for group, offsets in found.items()}
        for group, each in readings.items():
            self._rows[group] = len(found[group])
            self._marks.note(group, each, at_ms)
        self._ask_batches(
            metadata, {(g, tp): r for g, e in readings.items() for tp, r in e.items()}
        )
        for group, offsets in found.items():
            self._seen[group] = self._seen_group(group, states[group], offsets, ends, at_ms)

    def _list(self, well: Sequence[int]) -> tuple[dict[str, tuple[str, int]], set[int]] | None:
        """Return state and coordinator by group, and silent brokers; None if all are silent."""
        question: Question = (LIST_GROUPS, ListGroupsRequest(states_filter=[], types_filter=[]))
        answers = self._ask({broker: [question] for broker in well})
        states: dict[str, tuple[str, int]] = {}
        silent = set(well)
        for broker, (answer,) in answers.items():
            if isinstance(answer, HeadraceError) or answer.error_code:
                continue
            silent.discard(broker)
            for each in answer.groups:
                states[each.group_id] = (each.group_state or "", broker)
        return None if len(silent) == len(well) else (states, silent)

    def _chosen(self, groups: Collection[str]) -> list[str]:
        """Return the groups whose turn it is: all, if they have few partitions together."""
        if not any(group in groups for group in self._turn):
            self._turn = sorted(groups)
        chosen: list[str] = []
        rows = 0
        while self._turn and (not chosen or rows < MOST_ROWS):
            group = self._turn.pop(0)
            rows += self._rows.get(group, UNKNOWN_ROWS)
            chosen.append(group)
        return chosen

    def _offsets(self, coordinators: Mapping[str, int]) -> dict[str, dict[TopicPartition, int]]:
        by_broker: dict[int, list[OffsetFetchRequest.OffsetFetchRequestGroup]] = {}
        for group, broker in coordinators.items():
            row = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            by_broker.setdefault(broker, []).append(row)
        answers = self._ask(
            {
                broker: [(OFFSET_FETCH, OffsetFetchRequest(groups=rows))]
                for broker, rows in by_broker.items()
            }
        )
        return {
            row.group_id: {
                TopicPartition(topic.name, each.partition_index): each.committed_offset
                for topic in row.topics
                for each in topic.partitions
                if each.committed_offset >= 0 and not each.error_code
            }
            for (answer,) in answers.values()
            if not isinstance(answer, HeadraceError)
            for row in answer.groups
            if not row.error_code
        }

    def _ask_batches(
        self, metadata: ClusterMetadata, readings: Mapping[MarkKey, GroupReading]
    ) -> None:
        """Fetch first unread batches' headers: their times, and whether only markers are left."""
        wanted: dict[TopicPartition, list[MarkKey]] = {}
        by_leader: dict[int, list[FetchPartition]] = {}
        for key in self._marks.to_ask(MOST_ASKED):
            tp, reading = key[1], readings.get(key)
            topic = metadata.topics.get(tp.topic)
            if reading is None or topic is None or tp.partition not in topic.partitions:
                continue
            wanted.setdefault(tp, []).append(key)
            if len(wanted[tp]) == 1:
                partition = topic.partitions[tp.partition]
                row = FetchPartition(*tp, reading.committed, HEADER_BYTES, partition.leader_epoch)
                by_leader.setdefault(partition.leader, []).append(row)
        if not wanted:
            return
        answers = self._ask(
            {broker: [(BY_NAME, one_header_each(rows))] for broker, rows in by_leader.items()}
        )
        for (answer,) in answers.values():
            for part in () if isinstance(answer, HeadraceError) else answer.partitions:
                tp = TopicPartition(part.topic, part.partition)
                # Of several groups at other offsets only the first was asked for; others follow.
                if tp in wanted:
                    key = wanted[tp][0]
                    header = header_of(part)
                    is_last = header is not None and _ends_with(header, readings[key])
                    self._marks.answered(key, written_ms(header), only_markers=is_last)

    def _seen_group(
        self,
        group: str,
        listed: tuple[str, int],
        offsets: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, Ends],
        at_ms: int,
    ) -> SeenGroup:
        lag, behind_ms, sure_ms, worst = 0, 0, 0, None
        for tp, committed in offsets.items():
            high = ends[tp].high_watermark if tp in ends else None
            lag += max(0, high - committed) if high is not None else 0
            age_ms = self._marks.behind_ms(group, tp, at_ms)
            behind_ms = max(behind_ms, age_ms)
            if age_ms > sure_ms and self._marks.is_sure(group, tp):
                sure_ms, worst = age_ms, tp
        return SeenGroup(
            group=group,
            state=listed[0],
            coordinator=listed[1],
            topics=frozenset(tp.topic for tp in offsets),
            lag=lag,
            lag_ms=behind_ms,
            sure_lag_ms=sure_ms,
            worst=worst,
            had_members=group in self._had_members,
        )


def one_header_each(rows: list[FetchPartition]) -> FetchRequest:
    """Return a fetch of the batch header at each offset. The first batch comes whole, whatever its
    size; of the others the header suffices."""
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=HEADER_BYTES * len(rows), partitions=rows
    )


def _readings(
    offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Ends]
) -> dict[TopicPartition, GroupReading]:
    """Return readings up to the last stable offset: waiting for a transaction is not being slow."""
    found = {}
    for tp, committed in offsets.items():
        end = ends.get(tp)
        if end is not None and end.high_watermark is not None:
            stable = end.high_watermark if end.stable is None else end.stable
            found[tp] = GroupReading(committed, stable)
    return found


def header_of(part: FetchPartitionResponse) -> BatchHeader | None:
    """Return the header of the first batch in a partition's answer; None if there is none."""
    if part.error_code or not isinstance(part.records, bytes | memoryview):
        return None
    try:
        return read_header(memoryview(part.records))
    except CorruptRecordError:
        return None


def written_ms(header: BatchHeader | None) -> int | None:
    """Return the batch's base timestamp, in ms since 1970; None: not known."""
    return None if header is None or header.base_timestamp <= 0 else header.base_timestamp


def _ends_with(header: BatchHeader, reading: GroupReading) -> bool:
    """Whether the log ends with this batch, and it is a transaction's marker."""
    return header.is_control and header.next_offset >= reading.end_offset
