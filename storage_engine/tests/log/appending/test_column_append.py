"""A run of appends is the same as the appends one by one: outcomes, bytes, segments, producers."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import (
    CorruptRecordError,
    KafkaError,
    LogFullError,
    LogStorageError,
)
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.files.free_space import FreeSpace
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import read_header, seal
from storage_engine.tests.log.support import (
    columns_of,
    join,
    make_batch,
    open_log,
    read_all,
    segment_files,
    state_of,
)
from storage_engine.tests.sampling import examples

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


def one_by_one(log, appends):
    """One by one."""
    return [outcome_of(log, memoryview(bytearray(each))) for each in appends]


def outcome_of(log, records):
    try:
        return log.leader_appends.append(records, leader_epoch=3, now_ms=NOW_MS)
    except KafkaError as failure:
        return told(failure)


def columns_or_one_by_one(log, appends, *, in_place=False):
    """As a connection does it: in columns if that can be, else batch by batch."""
    before = [memoryview(bytearray(each)) for each in appends]
    columns = columns_of(before, in_place=in_place) if appends else None
    if columns is None:
        return one_by_one(log, appends)
    offsets = log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    if offsets is None:
        assert before == appends
        return one_by_one(log, appends)
    assert len(offsets) == len(appends) + 1
    return [
        AppendResult(base, following - 1, following, -1, False, len(data))
        for base, following, data in zip(offsets, offsets[1:], appends, strict=False)
    ]


@st.composite
def good(draw):
    """Batches that are all fine, of one producer or none: what is appended in columns."""
    producer_id, epoch = draw(st.sampled_from([(-1, -1), (-1, -1), (7, 0), (7, 1)]))
    start = draw(st.sampled_from([0, 0, 5, 0x7FFFFFFE]))
    sequence, made = start if producer_id >= 0 else -1, []
    same_size = draw(st.booleans())
    for _ in range(draw(st.integers(1, 12))):
        count = draw(st.integers(1, 3))
        made.append(
            make_batch(
                count,
                payload=bytes(50 if same_size else draw(st.integers(0, 200))),
                timestamp_ms=draw(st.sampled_from([0, 1000, 1500, 2000])),
                producer=(producer_id, epoch, sequence),
                attributes=draw(st.sampled_from([0, 0, 4])),
            )
        )
        if producer_id >= 0:
            sequence = (sequence + count) & 0x7FFFFFFF
    return made


@st.composite
def nearly_good(draw):
    """One byte of one of them is another one."""
    made = [bytearray(each) for each in draw(good())]
    batch = draw(st.sampled_from(made))
    batch[draw(st.integers(0, len(batch) - 1))] ^= draw(st.integers(1, 255))
    return [memoryview(each) for each in made]


@st.composite
def lied_about(draw):
    """A field of one of them is out of range, under a right CRC."""
    made = draw(good())
    number = draw(st.integers(0, len(made) - 1))
    batch = bytearray(made[number])
    field, values = draw(
        st.sampled_from(
            [
                ("attributes", [-1, 5, 8, 0x10, 0x20, 0x40]),
                ("last_offset_delta", [-1, 7, 0x7FFFFFFF]),
                ("records_count", [-1, 0, 9, -0x80000000]),
                ("max_timestamp", [-1, 1 << 40]),
                ("producer_id", [-2, 7, 8]),
                ("producer_epoch", [-1, 1]),
                ("base_sequence", [-1, 0, 5]),
            ]
        )
    )
    header = read_header(batch)._replace(**{field: draw(st.sampled_from(values))})
    seal(batch, 0, header)
    made[number] = memoryview(batch)
    return made


RUNS = st.lists(st.one_of(good(), good(), nearly_good(), lied_about(), APPENDS), max_size=8)
CONFIGS = [
    SMALL_INDEX,
    LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_ms=1000),
    LogConfig(segment_bytes=1500, message_timestamp_type="LogAppendTime"),
    LogConfig(index_interval_bytes=0),
    LogConfig(index_interval_bytes=300),
    LogConfig(max_message_bytes=200),
]


@settings(max_examples=examples(150), deadline=None)
@given(runs=RUNS, config=st.sampled_from(CONFIGS), in_place=st.booleans())
def test_runs_in_columns_are_like_single_appends(runs, config, in_place):
    with tempfile.TemporaryDirectory() as folder:
        alone = open_log(Path(folder, "alone"), config)
        together = open_log(Path(folder, "together"), config)
        try:
            for appends in runs:
                expected = [outcome for each in appends for outcome in one_by_one(alone, [each])]
                outcomes = columns_or_one_by_one(together, appends, in_place=in_place)
                assert outcomes == expected
            assert state_of(together) == state_of(alone)
        finally:
            alone.close_without_flush()
            together.close_without_flush()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_good_batches_of_any_sizes_are_taken_in_columns(tmp_path, producer_id, in_place):
    disk = CountingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    one_by_one(log, [make_batch(producer=(producer_id, 0, 0))])
    appends = [
        make_batch(payload=bytes(number % 3), producer=(producer_id, 0, 1 + number))
        for number in range(20)
    ]
    before = disk.writes
    columns = columns_of(appends, in_place=in_place)
    offsets = log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    assert offsets == list(range(1, 22))
    assert disk.writes == before + (20 if in_place else 1)
    # The second time they are duplicates, which must be told by one who looks at each.
    again = log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    assert (again is None) == (producer_id == 7)
    log.close_without_flush()


@pytest.mark.parametrize(("in_place", "failing"), [(False, 1), (True, 1), (True, 5), (True, 9)])
def test_a_failed_write_of_columns_leaves_the_log_as_it_was(tmp_path, in_place, failing):
    disk = CountingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    one_by_one(log, [make_batch(producer=(7, 0, 0))])
    before = state_of(log)
    batches = [make_batch(producer=(7, 0, 1 + number)) for number in range(9)]
    columns = columns_of(batches, in_place=in_place)
    disk.fails = disk.writes + failing
    with pytest.raises(LogStorageError):
        log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    assert state_of(log) == before
    offsets = log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    assert offsets == list(range(1, 11))
    log.close_without_flush()


@pytest.mark.parametrize("kept", range(6))
def test_a_process_killed_between_the_writes_of_a_run_leaves_whole_batches(kept):
    disk = SimulatedDisk(Path("/data"))
    log = open_log(Path("/data"), LogConfig(), disk=disk)
    one_by_one(log, [make_batch(producer=(7, 0, 0))])
    batches = [make_batch(producer=(7, 0, 1 + number), payload=bytes(500)) for number in range(5)]
    disk.crash_after = disk.changes + 1 + kept
    with suppress(CrashError):
        columns = columns_of(batches, in_place=True)
        log.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
        disk.exists(Path("/data"))
    disk.kill_process()
    again = open_log(Path("/data"), LogConfig(), disk=disk)
    assert kept <= again.log_end_offset - 1 <= kept + 1
    assert [header.base_sequence for header in read_all(again)] == list(range(again.log_end_offset))
    # The producer sends all of them again, and none is there twice.
    assert all(
        isinstance(outcome, AppendResult)
        for outcome in columns_or_one_by_one(again, batches, in_place=True)
    )
    assert [header.base_sequence for header in read_all(again)] == list(range(6))
    again.close_without_flush()


def test_a_run_for_which_there_is_no_room_is_refused_batch_by_batch(tmp_path):
    class NearlyFull(RealDisk):
        def free_bytes(self, path):
            return 1000 + most - log.size_in_bytes

    most = 4 * len(make_batch(payload=bytes(100)))
    room = FreeSpace(NearlyFull(), tmp_path, reserve_bytes=1000)
    log = open_log(tmp_path, LogConfig(), room=room)
    one_by_one(log, [make_batch(payload=bytes(100))])
    room.refresh()
    outcomes = columns_or_one_by_one(
        log, [make_batch(payload=bytes(100)) for _ in range(5)], in_place=True
    )
    assert [type(each) is AppendResult for each in outcomes] == [True] * 3 + [False] * 2
    assert all(each[0] is LogFullError for each in outcomes[3:])
    assert log.log_end_offset == 4
    log.close_without_flush()


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


def test_a_segment_with_a_damaged_beginning_fails_each_append_of_a_run(tmp_path):
    config = LogConfig(index_interval_bytes=0)
    log = open_log(tmp_path, config)
    for _ in range(5):
        one_by_one(log, [make_batch()])
    end = log.log_end_offset
    log.close()
    reopened = open_log(tmp_path, config, clean=True, recovery_point=end)
    (path,) = segment_files(tmp_path)
    with path.open("r+b") as file:
        file.write(bytes(20))
    columns = columns_of([make_batch(), make_batch()])
    with pytest.raises(CorruptRecordError):
        reopened.leader_appends.append_columns(columns, leader_epoch=3, now_ms=NOW_MS)
    (alone,) = one_by_one(reopened, [make_batch()])
    assert alone[0] is CorruptRecordError
    assert one_by_one(reopened, [make_batch(), make_batch()]) == [alone, alone]
    assert reopened.log_end_offset == end
    reopened.close_without_flush()
