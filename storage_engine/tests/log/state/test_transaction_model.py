"""Transactions in a log against a naive model of KIP-98: several producers whose transactions
interleave, commits and aborts, cuts, deletions, compaction, kills and power failures, in any order.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.disk import SimulatedDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.compaction_support import compact
from storage_engine.tests.log.support import open_log
from storage_engine.tests.log.transaction_support import (
    aborted_of,
    copy,
    end,
    seen,
    transactions_of,
    write,
)
from storage_engine.tests.sampling import ALL_FAULTS

EXAMPLES = 300 if ALL_FAULTS else 20
ROOT = Path("/data")
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0)
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=100,
)

PRODUCERS = st.integers(1, 4)
WRITE = st.tuples(
    st.just("write"),
    st.one_of(st.none(), PRODUCERS, PRODUCERS, PRODUCERS),
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=3),
)
END = st.tuples(st.just("end"), PRODUCERS, st.booleans())
SHARE = st.floats(0, 1)
COMMON = [
    WRITE,
    WRITE,
    WRITE,
    END,
    END,
    st.tuples(st.just("replicate"), SHARE, st.none()),
    st.tuples(st.just("flush"), st.none(), st.none()),
    st.tuples(st.just("truncate"), SHARE, st.none()),
    st.tuples(
        st.just("reopen"),
        st.sampled_from(["clean", "killed", "power", "clean, then power"]),
        st.integers(0, 1000),
    ),
]
DELETE = st.tuples(st.just("delete"), SHARE, st.none())
COMPACT = st.tuples(st.just("compact"), st.integers(0, 300), st.sampled_from([96 * 2, 1 << 20]))


@dataclass
class Record:
    """A record, and the transaction that it is of."""

    offset: int
    key: bytes
    value: bytes
    producer: int | None


@dataclass
class Model:
    """Records and markers as they were appended; everything else is worked out anew each time."""

    records: list[Record] = field(default_factory=list)
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    """(offset, producer, commits)"""
    ends: list[int] = field(default_factory=lambda: [0])
    """The ends of batches: followers have whole ones, so that the high watermark is one of them."""
    high_watermark: int = 0

    def marker_of(self, record: Record) -> tuple[int, bool] | None:
        """Return the marker of the record's transaction: its offset, and True for a commit."""
        for offset, producer, commits in self.markers:
            if producer == record.producer and offset > record.offset:
                return offset, commits
        return None

    def is_undecided(self, record: Record) -> bool:
        if record.producer is None:
            return False
        marker = self.marker_of(record)
        return marker is None or marker[0] >= self.high_watermark

    def last_stable_offset(self) -> int:
        undecided = [record.offset for record in self.records if self.is_undecided(record)]
        return min([self.high_watermark, *undecided])

    def committed(self, start: int, stop: int) -> list[tuple[int, bytes, bytes]]:
        found = []
        for record in self.records:
            if not start <= record.offset < stop:
                continue
            marker = None if record.producer is None else self.marker_of(record)
            if record.producer is None or (marker is not None and marker[1]):
                found.append((record.offset, record.key, record.value))
        return found

    def cut(self, offset: int) -> None:
        self.records = [each for each in self.records if each.offset < offset]
        self.markers = [each for each in self.markers if each[0] < offset]
        self.ends = [each for each in self.ends if each <= offset]
        self.high_watermark = min(self.high_watermark, offset)


class Run:
    """A log on a simulated disk beside its model."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.disk = SimulatedDisk(ROOT)
        self.model = Model()
        self.now_ms = 10_000
        self.written = 0
        self.cut_since_flush = False
        self.log = open_log(ROOT, config, disk=self.disk)

    def act(self, action, first, second) -> None:
        getattr(self, f"_{action}")(first, second)

    def _write(self, producer, keys) -> None:
        records = []
        for key in keys:
            self.written += 1
            records.append((key, b"%d" % self.written))
        base = write(self.log, producer, *records)
        for number, (key, value) in enumerate(records):
            self.model.records.append(Record(base + number, key, value, producer))
        self.model.ends.append(self.log.log_end_offset)

    def _end(self, producer, commits) -> None:
        self.model.markers.append((end(self.log, producer, commits=commits), producer, commits))
        self.model.ends.append(self.log.log_end_offset)

    def _replicate(self, share, _) -> None:
        model = self.model
        goal = model.high_watermark + int((model.ends[-1] - model.high_watermark) * share)
        model.high_watermark = max(each for each in model.ends if each <= goal)
        if share > 0.5:
            self.log.note_high_watermark(model.high_watermark)

    def _flush(self, *_) -> None:
        # Where nothing is to be flushed, a cut is not brought to the medium either.
        if self.log.recovery_point < self.log.log_end_offset:
            self.cut_since_flush = False
        self.log.flush()

    def _truncate(self, share, _) -> None:
        self.cut_since_flush = True
        low = max(self.model.high_watermark, self.log.log_start_offset)
        self.model.cut(
            self.log.truncation.truncate_to(low + int((self.log.log_end_offset - low) * share))
        )

    def _delete(self, share, _) -> None:
        low, high = self.log.log_start_offset, self.model.high_watermark
        if low < high:
            self.log.retention.advance_log_start(low + int((high - low) * share))

    def _compact(self, wait_ms, buffer_bytes) -> None:
        self.now_ms += wait_ms
        compact(
            self.log,
            now_ms=self.now_ms,
            high_watermark=self.model.high_watermark,
            buffer_bytes=buffer_bytes,
        )

    def _reopen(self, how, seed) -> None:
        log = self.log
        start, recovery_point = log.log_start_offset, log.recovery_point
        first_dirty_offset = log.cleaning.first_dirty_offset
        is_clean = how.startswith("clean")
        if is_clean:
            log.close()
            recovery_point = log.log_end_offset
        else:
            log.close_without_flush()
        if "power" in how:
            self.disk.lose_power(random.Random(seed))
        self.log = open_log(
            ROOT,
            self.config,
            disk=self.disk,
            clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            first_dirty_offset=first_dirty_offset,
        )
        assert self.log.log_end_offset >= recovery_point
        if is_clean:
            self.cut_since_flush = False
        elif "power" in how and self.cut_since_flush:
            # What was cut may be back in the place of what came after it and was not flushed: as
            # the leader tells the broker that returns, which trusts nothing above what was flushed.
            self.log.truncation.truncate_to(max(recovery_point, self.log.log_start_offset))
            self.cut_since_flush = False
        self.model.cut(self.log.log_end_offset)

    def check(self) -> None:
        log, model = self.log, self.model
        start = log.log_start_offset
        stable = log.last_stable_offset(model.high_watermark)
        lowest = max(model.last_stable_offset(), min(start, model.high_watermark))
        if start == 0 and not log.config.compacts:
            assert stable == lowest
        assert lowest <= stable <= model.high_watermark
        # Nothing undecided is below; more may be above it where the first records were deleted.
        assert not any(
            model.is_undecided(record)
            for record in model.records
            if start <= record.offset < stable
        )
        found = seen(log, high_watermark=model.high_watermark)
        expected = model.committed(start, stable)
        if not log.config.compacts:
            assert found == expected
        else:
            assert set(found) <= set(expected)
            assert newest(found) == newest(expected)
            clean = [row for row in found if row[0] < log.cleaning.first_dirty_offset]
            assert len(newest(clean)) == len(clean)
        for row in found[:: max(1, len(found) // 3)]:
            tail = seen(log, row[0], high_watermark=model.high_watermark, max_bytes=150)
            assert tail == [other for other in found if other[0] >= row[0]]

    def check_replica(self) -> None:
        """A follower that copies the log knows what it knows: the next leader."""
        replica = open_log(
            Path("/replica"),
            self.config,
            disk=SimulatedDisk(Path("/replica")),
            log_start_offset=self.log.log_start_offset,
        )
        copy(self.log, replica)
        if self.log.log_start_offset == 0 and not self.config.compacts:
            assert transactions_of(replica) == transactions_of(self.log)
            assert aborted_of(replica) == aborted_of(self.log)
        high_watermark = self.model.high_watermark
        stable = min(
            self.log.last_stable_offset(high_watermark), replica.last_stable_offset(high_watermark)
        )
        assert [row for row in seen(replica, high_watermark=high_watermark) if row[0] < stable] == [
            row for row in seen(self.log, high_watermark=high_watermark) if row[0] < stable
        ]


def newest(rows):
    return {key: (offset, value) for offset, key, value in rows}


MODEL_SETTINGS = settings(max_examples=EXAMPLES, deadline=None, derandomize=not ALL_FAULTS)


@MODEL_SETTINGS
@given(actions=st.lists(st.one_of(*COMMON, DELETE), min_size=10, max_size=50))
def test_readers_see_what_the_model_says(actions):
    run = Run(CONFIG)
    for action in actions:
        run.act(*action)
        run.check()
    run.check_replica()
    run.log.close()


@MODEL_SETTINGS
@given(actions=st.lists(st.one_of(*COMMON, COMPACT, COMPACT), min_size=10, max_size=50))
def test_readers_of_a_compacted_log_see_what_the_model_says(actions):
    run = Run(COMPACTED)
    for action in actions:
        run.act(*action)
        run.check()
    run.check_replica()
    run.log.close()
