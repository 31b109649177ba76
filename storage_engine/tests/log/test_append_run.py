"""A run of appends is the same as the appends one by one: outcomes, bytes, segments, producers."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import KafkaError, LogStorageError
from storage_engine.log.disk import RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import join, make_batch, open_log, read_all

NOW_MS = 5000
SMALL_INDEX = LogConfig(
    segment_bytes=1500, index_interval_bytes=150, segment_index_bytes=36, file_delete_delay_ms=0
)


@st.composite
def plain(draw):
    return make_batch(
        draw(st.integers(1, 4)),
        payload=draw(st.binary(max_size=300)),
        timestamp_ms=draw(st.sampled_from([-1, 0, 1000, 2000, 90_000_000_000])),
    )


@st.composite
def idempotent(draw):
    """Of few producers and sequences, so that gaps, duplicates and new epochs come up."""
    producer = (draw(st.integers(1, 2)), draw(st.integers(0, 1)), draw(st.integers(0, 4)))
    return make_batch(draw(st.integers(1, 2)), producer=producer)


@st.composite
def damaged(draw):
    batch = make_batch(payload=b"to be damaged")
    position = draw(st.integers(8, len(batch) - 1))
    batch[position] ^= draw(st.integers(1, 255))
    return batch[: draw(st.integers(0, len(batch)))]


APPENDS = st.lists(
    st.one_of(
        plain(),
        idempotent(),
        idempotent(),
        damaged(),
        st.builds(join, plain(), idempotent()),
        st.builds(join, idempotent(), idempotent()),
        st.builds(make_batch, payload=st.just(bytes(2000))),
        st.builds(make_batch, attributes=st.just(0x20)),
    ),
    max_size=40,
)


def told(outcome):
    return (type(outcome), str(outcome)) if isinstance(outcome, KafkaError) else outcome


def run_of(log, appends):
    copies = [memoryview(bytearray(each)) for each in appends]
    return [told(each) for each in log.append_run_as_leader(copies, leader_epoch=3, now_ms=NOW_MS)]


def state_of(log):
    producers = [
        (entry.producer_id, entry.epoch, list(entry.batches))
        for entry in sorted(log.producer_state, key=lambda entry: entry.producer_id)
    ]
    files = {
        path.name: path.read_bytes()
        for path in sorted(log.directory.iterdir())
        if path.suffix == ".log"
    }
    return log.log_end_offset, producers, files, read_all(log)


@settings(max_examples=150, deadline=None)
@given(
    appends=APPENDS,
    cuts=st.lists(st.integers(1, 12)),
    config=st.sampled_from(
        [
            SMALL_INDEX,
            LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_ms=1000),
            LogConfig(segment_bytes=1500, message_timestamp_type="LogAppendTime"),
            LogConfig(),
        ]
    ),
)
def test_runs_of_any_length_are_like_single_appends(appends, cuts, config):
    with tempfile.TemporaryDirectory() as folder:
        alone = open_log(Path(folder, "alone"), config)
        together = open_log(Path(folder, "together"), config)
        try:
            expected = [outcome for each in appends for outcome in run_of(alone, [each])]
            found, left = [], appends
            for cut in [*cuts, len(appends)]:
                found += run_of(together, left[:cut])
                left = left[cut:]
            assert found == expected
            assert state_of(together) == state_of(alone)
        finally:
            alone.close_without_flush()
            together.close_without_flush()


class CountingDisk(RealDisk):
    """Counts writes, and fails the one with the number `fails`."""

    def __init__(self, fails: int | None = None) -> None:
        self.writes = 0
        self.fails = fails
        self.pwrite = self._pwrite

    def _pwrite(self, descriptor, data, position):
        self.writes += 1
        if self.writes == self.fails:
            raise OSError(5, "Input/output error")
        return RealDisk.pwrite(descriptor, data, position)


def test_a_run_is_one_write(tmp_path):
    disk = CountingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    run_of(log, [make_batch()])
    before = disk.writes
    outcomes = run_of(log, [make_batch(payload=bytes([number])) for number in range(30)])
    assert [outcome.base_offset for outcome in outcomes] == list(range(1, 31))
    assert disk.writes == before + 1
    log.close_without_flush()


def test_an_idempotent_producer_in_order_is_one_write(tmp_path):
    disk = CountingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    run_of(log, [make_batch(producer=(7, 0, 0))])
    before = disk.writes
    run_of(log, [make_batch(producer=(7, 0, sequence)) for sequence in range(1, 20)])
    assert disk.writes == before + 1
    assert log.producer_state.get(7).batches[-1].last_sequence == 19
    log.close_without_flush()


@pytest.mark.parametrize("fails", range(2, 6))
def test_what_a_failed_write_takes_down_can_be_sent_again(tmp_path, fails):
    """Three writes: one batch (the segment is empty), a run, a run after a producer's gap."""
    disk = CountingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    run_of(log, [make_batch()])
    disk.fails = disk.writes + fails - 1
    appends = [
        *[make_batch(producer=(7, 0, sequence)) for sequence in range(5)],
        make_batch(producer=(7, 0, 3)),
        *[make_batch(producer=(8, 0, sequence)) for sequence in range(5)],
    ]
    outcomes = run_of(log, appends)
    stored = [outcome for outcome in outcomes if not isinstance(outcome[0], type)]
    assert log.log_end_offset == 1 + len({outcome.base_offset for outcome in stored})
    failed = [
        each
        for each, outcome in zip(appends, outcomes, strict=True)
        if isinstance(outcome[0], type) and issubclass(outcome[0], LogStorageError)
    ]
    assert bool(failed) == (disk.writes >= disk.fails)
    disk.fails = None
    run_of(log, failed)
    log.close_without_flush()
    reopened = open_log(tmp_path, LogConfig())
    headers = read_all(reopened)
    assert [header.base_offset for header in headers] == list(range(11))
    assert {(h.producer_id, h.base_sequence) for h in headers} == {
        (-1, -1),
        *((producer, sequence) for producer in (7, 8) for sequence in range(5)),
    }
    reopened.close_without_flush()
