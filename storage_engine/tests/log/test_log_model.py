"""The log against a list of batches in memory: any order of appends, cuts, rolls and reopenings
gives the same records.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.record_batch import iter_headers
from storage_engine.tests.log.support import (
    append,
    join,
    make_batch,
    offsets_of,
    open_log,
    read_all,
)


class LogMachine(RuleBasedStateMachine):
    """`batches` is the model: (base offset, next offset, epoch, timestamp) in order."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.batches: list[tuple[int, int, int, int]] = []
        self.start = 0
        self.end = 0
        self.epoch = 0

    def teardown(self) -> None:
        self.log.close_without_flush()
        shutil.rmtree(self.path)

    @initialize(
        segment_bytes=st.integers(200, 3000),
        interval=st.integers(0, 600),
        index_bytes=st.integers(16, 400),
    )
    def open(self, segment_bytes, interval, index_bytes):
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            file_delete_delay_ms=0,
        )
        self.log = open_log(self.path, self.config)

    @rule(count=st.integers(1, 4), size=st.integers(0, 100), timestamp=st.integers(0, 5000))
    def append(self, count, size, timestamp):
        result = append(
            self.log, count, payload=bytes(size), timestamp_ms=timestamp, epoch=self.epoch
        )
        assert result.base_offset == self.end
        self._note(self.end, count, timestamp)
        assert result.next_offset == self.end

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=5), gap=st.integers(0, 2))
    def append_as_follower(self, counts, gap):
        parts = []
        offset = self.end + gap
        for count in counts:
            parts.append(
                make_batch(count, base_offset=offset, epoch=self.epoch, timestamp_ms=offset)
            )
            self._note(offset, count, offset)
            offset += count
        assert self.log.append_as_follower(join(*parts)).next_offset == self.end

    @rule()
    def new_leader(self):
        self.epoch += 1
        self.log.start_leader_epoch(self.epoch)

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        offset = self.start + int((self.end - self.start) * share)
        end = self.log.truncate_to(offset)
        kept = [batch for batch in self.batches if batch[1] <= offset]
        assert max(self.start, kept[-1][1] if kept else 0) <= end <= offset
        self.batches = kept
        self.end = end

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share):
        offset = self.start + int((self.end - self.start) * share)
        self.log.advance_log_start(offset)
        self.start = offset
        self.batches = [batch for batch in self.batches if batch[1] > offset]

    @precondition(lambda self: self.end > 0)
    @rule(clean=st.booleans())
    def reopen(self, clean):
        if clean:
            self.log.close()
            recovery_point = self.end
        else:
            self.log.close_without_flush()
            recovery_point = self.log.recovery_point
        self.log = open_log(
            self.path,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            first_dirty_offset=1,  # gaps are in order
            log_start_offset=self.start,
        )

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(share=st.floats(0, 1), bound_share=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, share, bound_share, max_bytes):
        offset = self.start + int((self.end - self.start) * share)
        bound = offset + int((self.end - offset) * bound_share)
        piece = self.log.read(offset, max_bytes=max_bytes, max_offset=bound)
        expected = [b for b in self.batches if b[1] > offset and b[1] <= bound]
        if piece is None:
            assert not expected
            return
        found = [(h.base_offset, h.next_offset) for _, h in iter_headers(piece.view())]
        assert found == [batch[:2] for batch in expected[: len(found)]]
        assert found
        assert len(piece) <= max_bytes or len(found) == 1

    @invariant()
    def same_range_and_records(self):
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        found = offsets_of([h for h in read_all(self.log) if h.next_offset > self.start])
        assert found == [o for base, after, _, _ in self.batches for o in range(base, after)]

    @invariant()
    def epochs_tell_who_wrote_what(self):
        for base, _, epoch, _ in self.batches:
            assert self.log.leader_epochs.epoch_at(max(base, self.start)) == epoch

    def _note(self, base, count, timestamp):
        self.end = base + count
        self.batches.append((base, self.end, self.epoch, timestamp))


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLogModel = LogMachine.TestCase
