"""The log of a coordinator with one wrong bit, wherever it is: told as damage or read as it was."""

import sys
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.coordinators import state_load
from storage_engine.broker.coordinators.state_load import DamagedLogError, LoadTroubles, StateLoad
from storage_engine.core.errors import LogStorageError
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers
from storage_engine.protocol.state.state_batches import readable
from storage_engine.tests.log.compaction_support import CONFIG, compact, put
from storage_engine.tests.log.support import ManualClock, open_log
from storage_engine.tests.sampling import ALL_FAULTS

PLACES = (*range(12), 16, 17, 22, 26, 60, HEADER_BYTES)
"""In a batch: offset, length, magic, CRC, and some of what that is for. Its leader epoch says
nothing of the state."""

STEP = 1 if ALL_FAULTS else 7
"""One place in seven by default, which comes to each of the eighteen in some batch."""


class AtOnce:
    """Background work that is done where it is asked for."""

    def submit(self, work, on_done, on_error) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - as the real one
            on_error(error)
        else:
            on_done(result)


def this_codec() -> Any:
    """This module is the codec of its tests."""
    return sys.modules[__name__]


new_content = dict


def replay(data: bytes, content: dict[bytes, bytes | None]) -> list[str]:
    """Put the last value of each key into `content`; return why batches could not be decoded."""
    troubles: list[str] = []
    content.update({key: value for _, key, value in readable(data, "log", troubles)})
    return troubles


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(state_load, "PIECE_BYTES", 500)


def load(
    log: PartitionLog, end_offset: int | None = None
) -> dict[bytes, bytes | None] | DamagedLogError:
    """As it was when the log ended there."""
    found: list[Any] = []
    made = StateLoad(
        log,
        this_codec,
        AtOnce(),
        on_loaded=lambda _codec, content: found.append(content),
        on_failed=found.append,
    )
    if end_offset is not None:
        made.end_offset = end_offset
    made.start()
    log.read_positions.clear()
    (result,) = found
    assert not isinstance(result, Exception) or isinstance(result, DamagedLogError), result
    return result


def filled(tmp_path, *, is_compacted: bool, has_empty_end: bool) -> PartitionLog:
    log = open_log(tmp_path, CONFIG)
    for number in range(40):
        # Of the first ones hardly any stays, so that segments begin and end with gaps.
        key = b"k%d" % (number % 4 if number < 25 else number % 9)
        put(log, [(key, b"%d" % number + bytes(60))] * (1 + number % 2))
    if has_empty_end:
        log.repair.close_segment_with(log.log_end_offset - 1)
    if is_compacted:
        assert compact(log)
    return log


def every_place(log: PartitionLog):
    """Path and position."""
    for path in sorted(log.directory.glob("*.log")):
        for position, _ in iter_headers(path.read_bytes()):
            for at in PLACES:
                yield path, position + at


@pytest.mark.parametrize("has_empty_end", [False, True])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_no_flipped_bit_makes_another_state(tmp_path, is_compacted, has_empty_end):
    log = filled(tmp_path, is_compacted=is_compacted, has_empty_end=has_empty_end)
    good = load(log)
    assert isinstance(good, dict) and len(good) == 9
    found = 0
    for number, (path, position) in enumerate(islice(every_place(log), 0, None, STEP)):
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(position)
            file.write(bytes([data[position] ^ 1 << number % 8]))
        result = load(log)
        if isinstance(result, DamagedLogError):
            found += 1
            told = log.segments.all[log.segments.number_of(result.offset)]
            assert (told.file.path, result.offset < log.log_end_offset) == (path, True)
        else:
            assert result == good, (path.name, position)
        path.write_bytes(data)
    assert found > 100 // STEP
    assert load(log) == good
    log.close()


def test_what_comes_while_it_is_read_hides_no_damage(tmp_path):
    log = filled(tmp_path, is_compacted=False, has_empty_end=False)
    end_offset = log.log_end_offset
    path = max(log.directory.glob("*.log"))
    own = len(path.read_bytes())
    put(log, [(b"another", b"1")] * 3)
    data = path.read_bytes()
    assert len(data) > own
    for position in [each for each, _ in iter_headers(data) if each < own]:
        for at in (*range(12), 16):
            spoilt = bytearray(data)
            spoilt[position + at] ^= 1
            path.write_bytes(spoilt)
            assert isinstance(load(log, end_offset), DamagedLogError), (position, at)
    path.write_bytes(data)
    good = load(log, end_offset)
    assert isinstance(good, dict) and len(good) == 9
    log.close()


def test_a_log_of_which_compaction_has_left_nothing_is_read(tmp_path):
    log = open_log(tmp_path, CONFIG)
    for _ in range(3):
        put(log, [(b"k", None)])
    log.repair.close_segment_with(0)
    day_ms = 24 * 3600 * 1000
    for passes in range(1, 4):
        compact(log, now_ms=passes * 3 * day_ms)
        put(log, [(b"other", b"1")])
        log.repair.close_segment_with(log.log_end_offset - 1)
    assert load(log) == {b"other": b"1"}
    log.close()


class ByHand:
    """Background work that is done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, ...]] = []

    def submit(self, *job: Any) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        AtOnce().submit(*self.jobs.pop(0))


@pytest.mark.parametrize("jobs_before", range(12))
def test_a_segment_that_compaction_replaces_while_it_is_read_gives_no_replica_up(
    tmp_path, jobs_before
):
    """Its files go, and the load that has looked one up finds none. The next begins anew."""
    log = filled(tmp_path, is_compacted=False, has_empty_end=False)
    background = ByHand()
    found: list[Any] = []
    given_up: list[PartitionLog] = []
    StateLoad(
        log,
        this_codec,
        background,
        on_loaded=lambda _codec, content: found.append(content),
        on_failed=found.append,
    ).start()
    for _ in range(jobs_before):
        background.run()
    assert compact(log)
    for path in log.segments.take_deleted_files(10**15):
        path.unlink()
    while background.jobs:
        background.run()
    if isinstance(found[0], LogStorageError):
        troubles = LoadTroubles(
            ManualClock(),
            repair=lambda *_: None,
            is_sound_elsewhere=lambda _: True,
            give_away=lambda *_: given_up.append(log),
        )
        partition: Any = SimpleNamespace(topic_partition=log.topic_partition, leader=object())
        troubles.failed(partition, found[0])
    assert not given_up
    good = load(log)
    assert isinstance(good, dict) and len(good) == 9
    log.close()
