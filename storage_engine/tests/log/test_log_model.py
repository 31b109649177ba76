"""The log against a naive one in memory: appends, cuts, rolls, deletion by time, size and request,
compaction, altered settings, stops and kills in any order give the same bytes, the same offsets and
the same answers to searches by time.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_segment import offset_in_name
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.compaction_support import BUFFER_BYTES, compact
from storage_engine.tests.log.naive_log import FILE_MS, Batch, NaiveLog, batches_of, placed
from storage_engine.tests.log.support import (
    ManualClock,
    SavedOffsets,
    join,
    open_log,
    run_search,
    segment_files,
)
from storage_engine.tests.sampling import ALL_FAULTS

SHARE = st.integers(0, 12).map(lambda twelfths: twelfths / 12)
KEYS = [b"", *(b"%d" % number for number in range(20))]
VALUES = [None, None, b"", b"short", bytes(range(40)), bytes(range(90))]
AGES = st.integers(0, 4000)
"""Ages of records when they are appended, in milliseconds; also how far back is searched."""
COUNTS = st.one_of(st.integers(0, 9), st.integers(0, 50))
"""Numbers of offsets that go."""
BATCHES = st.integers(1, 8)
SEEDS = st.integers(0, 1000)
"""Seeds of records: to draw each record would take longer than all the rest."""
CODECS = st.sampled_from(["none", "none", "gzip", "lz4", "snappy", "zstd"])
POLICIES = st.sampled_from(["delete", "compact", "compact", "compact,delete"])
SEVERAL_KEYS_BYTES = 96 * 2
"""The least memory of a pass, which then ends before it knows all keys."""


ACTIONS: list[st.SearchStrategy] = []
"""Each is the name of a method of the machine, with its arguments."""


def action(weight: int = 2, **arguments: st.SearchStrategy) -> Callable:
    """Marks a method as one of the things that may happen next, `weight` times as often as one of
    weight 1."""

    def register(method: Callable) -> Callable:
        # One strategy that is given several times would count once.
        ACTIONS.extend(
            st.tuples(st.just(method), st.fixed_dictionaries(arguments)) for _ in range(weight)
        )
        return method

    return register


class LogMachine:
    """A log beside its model, `naive`. `saved` is what the checkpoints say."""

    def __init__(self, path: Path, config: LogConfig) -> None:
        self.path = path
        self.clock = ManualClock()
        self.epoch = 0
        self.high_watermark = 0
        self.compacted = 0
        """Nothing below is cut: a pass has used what stands there."""
        self.naive = NaiveLog(config, self.clock.now_ms)
        self.saved = (0, 0, 0)
        self._open(clean=False)

    # -- settings, stops ---------------------------------------------------------------------------

    def _open(self, *, clean):
        log_start_offset, recovery_point, first_dirty_offset = self.saved
        self.log = open_log(
            self.path,
            self.naive.config,
            clock=self.clock,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            first_dirty_offset=first_dirty_offset,
            checkpoints=SavedOffsets(self.save),
        )

    @action()
    def save(self):
        """The checkpoints are written."""
        log = self.log
        self.saved = (
            log.log_start_offset,
            log.recovery_point,
            log.cleaning.first_dirty_offset,
        )

    @action(clean=st.booleans())
    def reopen(self, clean):
        naive = self.naive
        if clean:
            self.log.close()
            self.save()
        else:
            self.log.close_without_flush()
        self._open(clean=clean)
        naive.start = max(self.saved[0], naive.segments[0].base_offset)
        is_known = self.saved[2] <= naive.end
        naive.first_dirty = self.saved[2] if is_known else min(1, naive.end)
        for segment in naive.segments:
            segment.created_ms = self.clock.now_ms
            segment.written_ms = FILE_MS

    @action(
        policy=POLICIES,
        segment_ms=st.sampled_from([500, 3000, 1 << 40]),
        retention_ms=st.sampled_from([-1, 1000, 5000]),
        retention_bytes=st.sampled_from([-1, 300, 3000]),
        lag_ms=st.sampled_from([0, 0, 1500]),
    )
    def alter(self, policy, segment_ms, retention_ms, retention_bytes, lag_ms):
        was_compacted = self.naive.config.compacts
        self.naive.config = replace(
            self.naive.config,
            cleanup_policy=policy,
            segment_ms=segment_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            min_compaction_lag_ms=lag_ms,
        )
        self.log.update_config(self.naive.config)
        if was_compacted and not self.naive.config.compacts:
            self.naive.expect_gaps()
            self.saved = (*self.saved[:2], self.naive.first_dirty)

    @action(4, milliseconds=st.integers(1, 3000))
    def wait(self, milliseconds):
        self.clock.now_ms += milliseconds
        for path in self.log.segments.take_deleted_files(self.clock.now_ms):
            path.unlink()

    @action()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.naive.end

    # -- append ------------------------------------------------------------------------------------

    def _batches(self, count, seed, *, codec="none", has_times=True, has_keys=True):
        """Bytes and rows of some batches."""
        choose = random.Random(seed)
        for _ in range(count):
            newest_ms = self.clock.now_ms - choose.choice([0, 0, 500, 3000])
            rows = [
                (
                    choose.choice(KEYS) if has_keys else None,
                    choose.choice(VALUES),
                    newest_ms - choose.randrange(100) if has_times else -1,
                )
                for _ in range(choose.randint(1, 4))
            ]
            keys, values, times = zip(*rows, strict=True)
            (batch,) = encode_batches(
                pa.array(values, pa.binary()),
                pa.array(keys, pa.binary()),
                timestamps_ms=pa.array(times, pa.int64()),
                compression=codec,
            )
            yield bytes(batch.data), rows

    @action(
        10,
        count=BATCHES,
        seed=SEEDS,
        codec=CODECS,
        has_times=st.sampled_from([True, True, True, False]),
    )
    def append(self, count, seed, codec, has_times):
        for data, rows in self._batches(count, seed, codec=codec, has_times=has_times):
            self._append(data, rows)

    @action(count=BATCHES, seed=SEEDS)
    def append_without_keys(self, count, seed):
        if not self.naive.config.compacts:
            for data, rows in self._batches(count, seed, has_keys=False):
                self._append(data, rows)

    def _append(self, data, rows):
        now_ms, naive = self.clock.now_ms, self.naive
        buffer = memoryview(bytearray(data))
        result = self.log.leader_appends.append(buffer, leader_epoch=self.epoch, now_ms=now_ms)
        assert result.base_offset == naive.end
        if naive.config.stamps_append_time:
            rows = [(key, value, now_ms) for key, value, _ in rows]
            # The log wrote the time into the batch.
            data = bytes(buffer)
        batch = placed(data, naive.end, self.epoch, rows)
        if naive.config.stamps_append_time:
            assert batch.header.max_timestamp == now_ms
        naive.append([batch], now_ms, self._has_segment)
        assert result.next_offset == naive.end

    @action(4, count=BATCHES, seed=SEEDS, gap=st.sampled_from([0, 0, 0, 1, 2]))
    def append_as_follower(self, count, seed, gap):
        offset = self.naive.end + gap
        runs: list[list[Batch]] = []
        size = 0
        for data, rows in self._batches(count, seed):
            batch = placed(data, offset, self.epoch, rows)
            if runs and size + len(data) <= self.naive.config.segment_bytes:
                runs[-1].append(batch)
            else:
                runs.append([batch])
                size = 0
            size += len(data)
            offset = batch.next_offset
        data = join(*(memoryview(batch.data) for run in runs for batch in run))
        assert self.log.follower_appends.append(data).next_offset == offset
        if gap:
            self.naive.expect_gaps()
        for run in runs:
            self.naive.append(run, self.clock.now_ms, self._has_segment)

    def _has_segment(self, base_offset):
        return base_offset in [base for base, _ in self._found()]

    @action()
    def new_leader(self):
        self.epoch += 1
        self.log.leader_appends.start_epoch(self.epoch)

    @action(4, share=st.sampled_from([0.3, 0.9, 1, 1]))
    def replicate(self, share):
        self.high_watermark = self.naive.boundary(share, self.high_watermark)

    # -- cut ---------------------------------------------------------------------------------------

    @action(count=COUNTS)
    def truncate(self, count):
        offset = max(self.naive.end - count, self.naive.start, self.compacted)
        self.naive.truncate(offset, self.clock.now_ms)
        assert self.log.truncation.truncate_to(offset) == self.naive.end
        self.high_watermark = min(self.high_watermark, self.naive.end)

    @action(
        1,
        distance=st.integers(1, 5),
        how=st.sampled_from(["not now", "not now", "behind", "ahead"]),
    )
    def begin_anew(self, distance, how):
        """A follower whose log ends before the leader's begins, or begins after it ends."""
        naive = self.naive
        if how == "not now":
            return
        offset = naive.end + distance if how == "behind" else max(0, naive.start - distance)
        if how == "behind":
            naive.begin_anew(offset, self.clock.now_ms)
            self.log.truncation.truncate_fully_and_start_at(offset)
        else:
            naive.truncate(offset, self.clock.now_ms)
            assert self.log.truncation.truncate_to(offset) == naive.end
        self.high_watermark = self.compacted = naive.end

    @action(count=COUNTS)
    def delete_records(self, count):
        offset = min(self.naive.start + count, self.naive.end)
        assert self.log.retention.advance_log_start(offset) == (offset > self.naive.start)
        self.naive.delete_records(offset)

    @action(4)
    def apply_retention(self):
        now_ms = self.clock.now_ms
        count = self.log.retention.delete_old_segments(now_ms, self.high_watermark)
        assert count == self.naive.apply_retention(now_ms, self.high_watermark)

    @action(
        10,
        keys_max_bytes=st.sampled_from([SEVERAL_KEYS_BYTES, BUFFER_BYTES, BUFFER_BYTES]),
        wait_ms=st.sampled_from([0, 300, 600]),
        is_replicated=st.booleans(),
    )
    def compact(self, keys_max_bytes, wait_ms, is_replicated):
        log, naive = self.log, self.naive
        if not naive.config.compacts:
            return
        self.clock.now_ms += wait_ms
        now_ms = self.clock.now_ms
        if is_replicated:
            self.high_watermark = naive.end
        dirty = max(naive.first_dirty, naive.segments[0].base_offset)
        goal = naive.cleanable_end(self.high_watermark, now_ms)
        is_due = any(
            segment.size and dirty < naive.next_offset_of(segment) <= goal
            for segment in naive.segments
        )
        assert is_due == compact(
            log,
            now_ms=now_ms,
            high_watermark=self.high_watermark,
            buffer_bytes=keys_max_bytes,
        )
        if not is_due:
            return
        reached = log.cleaning.first_dirty_offset
        assert reached == goal or (dirty < reached < goal and keys_max_bytes == SEVERAL_KEYS_BYTES)
        naive.compact(reached, now_ms, self._found())
        self.compacted = max(self.compacted, goal)

    # -- read --------------------------------------------------------------------------------------

    @action(share=SHARE, bound_share=SHARE, max_bytes=st.integers(1, 2000))
    def read(self, share, bound_share, max_bytes):
        naive = self.naive
        offset = naive.start + int((naive.end - naive.start) * share)
        bound = offset + int((naive.end - offset) * bound_share)
        piece = self.log.reads.read(offset, max_bytes=max_bytes, max_offset=bound)
        expected = [b.data for b in naive.batches if b.next_offset > offset]
        expected = expected[: len([b for b in naive.batches if offset < b.next_offset <= bound])]
        if piece is None:
            assert not expected
            return
        data = bytes(piece.view())
        count = len(batches_of(data))
        assert count and data == b"".join(expected[:count])
        assert len(piece) <= max_bytes or count == 1

    @action(age=AGES, share=SHARE)
    def find_time(self, age, share):
        timestamp_ms = self.clock.now_ms - age
        bound = self.naive.boundary(share, self.naive.start)
        records = self.naive.records(bound)
        late = [record for record in records if record.timestamp_ms >= timestamp_ms]
        found = run_search(self.log.reads.search_timestamp(timestamp_ms, bound))
        self._check_found(found, late[0] if late else None)

    @action(share=SHARE)
    def find_latest_time(self, share):
        bound = self.naive.boundary(share, self.naive.start)
        records = [r for r in self.naive.records(bound) if r.timestamp_ms >= 0]
        found = run_search(self.log.reads.search_largest_timestamp(bound))
        self._check_found(found, max(records, key=lambda r: r.timestamp_ms, default=None))

    def _check_found(self, found, record):
        if record is None:
            assert found is None
            return
        assert found is not None and found[:2] == (record.offset, record.timestamp_ms)
        (epoch,) = {
            batch.header.partition_leader_epoch
            for batch in self.naive.batches
            if record in batch.records
        }
        assert found.leader_epoch == epoch

    # -- always ------------------------------------------------------------------------------------

    def check(self):
        self._check_segments()
        self._check_batches()
        self._check_epochs()

    def check_records(self):
        """Dear, so done once."""
        expected = [record for batch in self.naive.batches for record in batch.records]
        data = b"".join(batch.data for batch in self.naive.batches)
        assert [record for batch in batches_of(data) for record in batch.records] == expected

    def _found(self):
        """Base offset and bytes of the segments on disk."""
        found = [(offset_in_name(p.name, ".log"), p) for p in segment_files(self.path)]
        return [(base, path.read_bytes()) for base, path in found if base is not None]

    def _check_segments(self):
        assert self._found() == [(s.base_offset, s.data) for s in self.naive.segments]

    def _check_batches(self):
        log, naive = self.log, self.naive
        assert (log.log_start_offset, log.log_end_offset) == (naive.start, naive.end)
        assert log.cleaning.first_dirty_offset == naive.first_dirty
        position, data = naive.start, b""
        while (piece := log.reads.read(position, max_bytes=700)) is not None:
            assert piece.end_offset > position
            data += bytes(piece.view())
            position = piece.end_offset
        assert data == b"".join(batch.data for batch in naive.batches)

    def _check_epochs(self):
        for batch in self.naive.batches:
            offset = max(batch.header.base_offset, self.naive.start)
            epoch = self.log.leader_epochs.epoch_at(offset)
            assert epoch == batch.header.partition_leader_epoch


CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(450, 1100),
    index_interval_bytes=st.integers(0, 600),
    segment_index_bytes=st.integers(16, 400),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    cleanup_policy=POLICIES,
    min_cleanable_dirty_ratio=st.just(0.0),
    delete_retention_ms=st.just(500),
    file_delete_delay_ms=st.just(0),
)
EXAMPLES = 500 if ALL_FAULTS else 15


@settings(max_examples=EXAMPLES, deadline=None)
@given(config=CONFIGS, actions=st.lists(st.one_of(ACTIONS), min_size=30, max_size=60))
def test_the_log_is_what_the_naive_one_is(config, actions):
    with tempfile.TemporaryDirectory(prefix="log-model-") as folder:
        machine = LogMachine(Path(folder), config)
        for method, arguments in actions:
            method(machine, **arguments)
            machine.check()
        machine.check_records()
        machine.log.close_without_flush()
