"""The states of a log that a crash may leave. The model knows what was asked of the log, and what
it said was on the medium, but nothing of how it works.

Every batch that stood in the log since everything in it was last on the medium may still be there;
below `durable_end` the batches must be those that were there at the end.
"""

import random
from collections import defaultdict

from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segments.log_segment import LogSegment, offset_in_name
from storage_engine.protocol.records.record_batch import BatchHeader, crc_matches
from storage_engine.tests.log.compaction_support import Row, newest_of
from storage_engine.tests.log.recovery.crash_batches import StoredBatch, batches_in, rows_in
from storage_engine.tests.log.support import run_search

TIMES_SHARE = 0.3
"""The share of openings after which the log is asked for times: an answer decodes a batch."""


class LogModel:
    """One partition."""

    def __init__(self, topic_partition: TopicPartition, *, compacts: bool) -> None:
        self.topic_partition = topic_partition
        self.compacts = compacts
        self.current: list[StoredBatch] = []
        """The batches that the log should have, oldest first; retention may have taken some."""
        self.possible: dict[int, set[bytes]] = defaultdict(set)
        """By base offset: batches that may be found after a crash."""
        self.times: dict[bytes, tuple[int, ...]] = {}
        """The times of a batch's records, by what of it no log changes."""
        self.end = 0
        self.durable_end = 0
        self.start = 0
        """The largest log start offset that may be found."""
        self.durable_start = 0
        self.high_watermark = 0
        self.saved_high_watermarks = {0}
        """The high watermarks that the checkpoint may hold."""
        self.latest_epoch = 0
        self.is_created = False
        """Whether something of the partition must be on the medium."""

    # -- what is done ------------------------------------------------------------------------------

    def appended(self, batch: StoredBatch) -> None:
        self.may_be_appended(batch)
        self.current.append(batch)
        self.end = batch.header.next_offset

    def may_be_appended(self, batch: StoredBatch) -> None:
        self.possible[batch.header.base_offset].add(batch.data)

    def may_be_cut(self, offset: int) -> None:
        """Before a truncation: from here on nothing at or above `offset` needs to be found."""
        below = [b.header.next_offset for b in self.current if b.header.next_offset <= offset]
        self.durable_end = min(self.durable_end, max(below, default=0))

    def cut(self, log: PartitionLog, offset: int) -> None:
        if offset == self.end > 0:
            # Nothing was. Where it is all deleted, files may come back that no sync saw go.
            return
        self.end = log.log_end_offset
        is_empty = log.size_in_bytes == 0
        kept = [b for b in self.current if b.header.next_offset <= self.end]
        self.current = [] if is_empty else kept
        self.high_watermark = min(self.high_watermark, self.end)
        self.durable_start = min(self.durable_start, log.log_start_offset)

    def recovery_point_is(self, offset: int) -> None:
        """It may lie below a log that was begun anew; then it says nothing."""
        if self.current and offset > self.current[0].header.base_offset:
            self.durable_end = max(self.durable_end, min(offset, self.end))

    def flushed(self, log: PartitionLog) -> None:
        """Whatever may have brought something to the medium."""
        self.recovery_point_is(log.recovery_point)
        if log.is_durable and log.recovery_point == self.end:
            self.is_created = self.is_created or self.end > 0
            self.possible = defaultdict(set)
            for batch in self.current:
                self.may_be_appended(batch)
            self.start = log.log_start_offset

    # -- what is found -----------------------------------------------------------------------------

    def check(
        self, manager: LogManager, disk: SimulatedDisk, choose: random.Random, *, floor: int
    ) -> None:
        """After opening; then goes on from what was found. `floor`: the log must reach up to it."""
        log = manager.logs.get(self.topic_partition)
        if log is None:
            assert not self.is_created and floor == 0, "the partition is gone"
            log = manager.get_or_create(self.topic_partition)
        start, end = log.log_start_offset, log.log_end_offset
        found = stored_batches(log, disk)
        assert floor <= end, f"ends at {end}, had {floor}"
        assert start <= end, f"starts at {start}, ends at {end}"
        assert start <= self.start, f"starts at {start}, not above {self.start}"
        if self.is_created:
            assert start >= self.durable_start, f"starts at {start}, had {self.durable_start}"
        assert log.recovery_point <= end
        saved = manager.high_watermark(self.topic_partition)
        # No start registers here, so at each one what was not flushed counts as lost.
        assert saved <= min(log.recovery_point, max(self.saved_high_watermarks)), f"at {saved}"
        self._check_batches(found, end, floor, start)
        self._check_epochs(log, found)
        self._check_producers(log, found, start)
        check_indexes(log)
        if choose.random() < TIMES_SHARE:
            self._check_times(log, found, choose)
        self.current = found
        self.end = end
        self.high_watermark = min(self.high_watermark, end)
        self.latest_epoch = max(self.latest_epoch, log.latest_epoch)
        self.flushed(log)

    def _check_batches(self, found: list[StoredBatch], end: int, floor: int, start: int) -> None:
        next_offset = found[0].header.base_offset if found else end
        begins = self.compacts or next_offset <= start or (not found and start == end)
        assert begins, f"no batch at its start {start}, but {next_offset}"
        epoch = -1
        for header, data in found:
            assert crc_matches(memoryview(data), 0, len(data)), f"CRC at {header.base_offset}"
            assert header.partition_leader_epoch >= epoch, f"epoch at {header.base_offset}"
            assert header.base_offset >= next_offset
            if not self.compacts:
                assert header.base_offset == next_offset, f"a gap before {header.base_offset}"
                assert data in self.possible[header.base_offset], f"foreign {header.base_offset}"
            next_offset, epoch = header.next_offset, header.partition_leader_epoch
        if self.compacts:
            self._check_rows(found, floor, start)
        else:
            assert next_offset == end, f"ends at {end}, its batches at {next_offset}"
        stored = {b.header.base_offset: b.data for b in found}
        for header, data in self.current if not self.compacts else ():
            if start < header.next_offset <= floor:
                assert stored.get(header.base_offset) == data, f"altered {header.base_offset}"

    def _check_rows(self, found: list[StoredBatch], floor: int, start: int) -> None:
        """In a compacted log nothing is foreign, and the newest record of each key is there."""
        known: dict[int, set[Row]] = defaultdict(set)
        for versions in self.possible.values():
            for data in versions:
                for row in rows_in(data):
                    known[row.offset].add(row)
        rows = [row for batch in found for row in rows_in(batch.data)]
        for row in rows:
            assert row in known[row.offset], f"foreign record {row}"
        newest = newest_of(rows)
        expected = [row for batch in self.current for row in rows_in(batch.data)]
        for key, row in newest_of([row for row in expected if row.offset < floor]).items():
            if row.offset >= start:
                assert key in newest and newest[key].offset >= row.offset, f"lost {row}"

    def _check_epochs(self, log: PartitionLog, found: list[StoredBatch]) -> None:
        start = log.log_start_offset
        replayed: list[tuple[int, int]] = []
        for header, _ in found:
            if header.next_offset > start and (
                not replayed or replayed[-1][0] != header.partition_leader_epoch
            ):
                place = max(header.base_offset, start) if not replayed else header.base_offset
                replayed.append((header.partition_leader_epoch, place))
        entries = [tuple(entry) for entry in log.leader_epochs.entries]
        if self.compacts:
            for header, _ in found:
                if header.base_offset >= start:
                    epoch = log.leader_epochs.epoch_at(header.base_offset)
                    assert epoch == header.partition_leader_epoch, f"epochs {entries}"
        elif replayed:
            # The epoch of the last deleted offset is known, too, and begins where it did.
            ends = [begin for _, begin in entries[1:]] + [log.log_end_offset]
            known = zip(entries, ends, strict=True)
            left = [(epoch, max(begin, start)) for (epoch, begin), end in known if end > start]
            assert left == replayed, f"epochs {entries}, replayed {replayed}"
            assert len(entries) <= len(left) + 1, f"epochs {entries}, start {start}"

    def _check_producers(self, log: PartitionLog, found: list[StoredBatch], start: int) -> None:
        replayed: dict[int, list[BatchHeader]] = defaultdict(list)
        for header, _ in found:
            if header.producer_id >= 0:
                batches = replayed[header.producer_id]
                if batches and batches[-1].producer_epoch != header.producer_epoch:
                    batches.clear()
                batches.append(header)
        for producer_id, batches in replayed.items():
            entry = log.producer_state.get(producer_id)
            assert entry is not None, f"producer {producer_id} is unknown"
            assert entry.epoch == batches[-1].producer_epoch, f"epoch of producer {producer_id}"
            have = [(b.first_sequence, b.base_offset, b.last_offset) for b in entry.batches]
            want = [(b.base_sequence, b.base_offset, b.last_offset) for b in batches[-5:]]
            if self.compacts:
                have, want = have[-1:], want[-1:]
            assert have[-len(want) :] == want, f"producer {producer_id}: {have}, replayed {want}"
            # What else it knows must have been there, in the part that is deleted by now.
            for _, base_offset, _ in have[: -len(want)]:
                assert base_offset < start or self.compacts, f"producer {producer_id}: {have}"
        first = found[0].header.base_offset if found else log.log_end_offset
        for entry in log.producer_state:
            if entry.producer_id not in replayed:
                assert self.compacts or all(b.base_offset < first for b in entry.batches), (
                    f"producer {entry.producer_id} has nothing in the log"
                )

    def _check_times(
        self, log: PartitionLog, found: list[StoredBatch], choose: random.Random
    ) -> None:
        start = log.log_start_offset
        if self.compacts:
            rows = [(r.offset, r.timestamp_ms) for b in found for r in rows_in(b.data)]
        else:
            rows = [
                (header.base_offset + number, timestamp)
                for header, data in found
                for number, timestamp in enumerate(self.times[data[21:]])
            ]
        rows = [(offset, timestamp) for offset, timestamp in rows if offset >= start]
        times = sorted({timestamp for _, timestamp in rows})
        latest = run_search(log.reads.search_largest_timestamp())
        assert (latest.timestamp_ms if latest else None) == (times[-1] if times else None)
        if times:
            wanted = choose.choice(times)
            answer = run_search(log.reads.search_timestamp(wanted))
            expected = next(row for row in rows if row[1] >= wanted)
            assert answer and answer[:2] == expected, f"time {wanted}: {answer}, {expected}"
            assert run_search(log.reads.search_timestamp(times[-1] + 1)) is None


def stored_batches(log: PartitionLog, disk: SimulatedDisk) -> list[StoredBatch]:
    """From the files, past the code that reads the log; and that code must find the same."""
    found: list[StoredBatch] = []
    names = sorted(name for name in disk.list_names(log.directory) if name.endswith(".log"))
    for name in names:
        assert offset_in_name(name, ".log") is not None, name
        found += batches_in(disk.read_file(log.directory / name))
    position = log.log_start_offset
    read: list[StoredBatch] = []
    while (piece := log.reads.read(position, max_bytes=4000)) is not None:
        assert piece.end_offset > position
        read += batches_in(piece.view())
        position = piece.end_offset
    assert read == [b for b in found if b.header.next_offset > log.log_start_offset]
    return found


def check_indexes(log: PartitionLog) -> None:
    """Every entry that a search may meet names a batch."""
    for segment in log.segments.all:
        headers = dict(segment.scan())
        _check_offset_index(segment, headers)
        latest = -1
        largest = {}
        for header in headers.values():
            latest = max(latest, header.max_timestamp)
            largest[header.last_offset] = latest
        previous = (-2, -1)
        for number in range(len(segment.time_index)):
            entry = segment.time_index.entry(number)
            assert entry > previous, f"{segment.time_index.file.path} entry {number}"
            assert largest.get(entry.last_offset) == entry.timestamp_ms, (
                f"{segment.time_index.file.path} entry {number} {entry}"
            )
            previous = entry


def _check_offset_index(segment: LogSegment, headers: dict[int, BatchHeader]) -> None:
    previous = (-1, -1)
    for number in range(len(segment.offset_index)):
        entry = segment.offset_index.entry(number)
        where = f"{segment.offset_index.file.path} entry {number} {entry}"
        assert entry.last_offset > previous[0] and entry.position > previous[1], where
        header = headers.get(entry.position)
        assert header is not None and header.last_offset == entry.last_offset, where
        previous = entry
