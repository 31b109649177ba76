"""Compaction of logs with transactions: aborted records and markers go. KIP-98, KIP-534."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import (
    InvalidProducerEpochError,
)
from storage_engine.tests.log.compaction_support import CONFIG as COMPACTED
from storage_engine.tests.log.compaction_support import compact
from storage_engine.tests.log.support import (
    open_log,
    read_all,
    segment_files,
)
from storage_engine.tests.log.transaction_support import (
    abort,
    aborted_of,
    commit,
    seen,
    values,
    write,
)

KEY = (b"k", b"v")


# -- compaction ------------------------------------------------------------------------------------

CONFIG = replace(COMPACTED, segment_bytes=600, delete_retention_ms=1000)


def kinds(log) -> list[tuple[int, str]]:
    """Base offset and kind of each batch in the log."""
    found = []
    for header in read_all(log, 0):
        kind = "marker" if header.is_control else "data" if header.records_count else "empty"
        found.append((header.base_offset, kind))
    return found


def roll(log) -> None:
    """Fills the active segment with records of no producer, so that all before can be compacted."""
    segment = log.segment_count
    while log.segment_count == segment:
        write(log, None, (b"filler", bytes(200)))


def test_nothing_at_or_above_the_last_stable_offset_is_compacted(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, None, (b"a", b"old"))
    write(log, 1, (b"a", b"new"))
    for _ in range(3):
        roll(log)
    compact(log)
    assert (b"a", b"old") in [row[1:] for row in seen(log)]
    abort(log, 1)
    roll(log)
    compact(log)
    assert (b"a", b"old") in [row[1:] for row in seen(log)]
    assert b"new" not in values(seen(log, isolated=False))


def test_an_aborted_record_displaces_none_and_is_dropped(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, None, (b"a", b"old"))
    write(log, 1, (b"a", b"aborted"), (b"b", b"aborted"))
    marker = abort(log, 1)
    write(log, 1, (b"c", b"committed"))
    commit(log, 1)
    roll(log)
    assert compact(log)
    found = values(seen(log, isolated=False))
    assert b"old" in found and b"committed" in found and b"aborted" not in found
    assert [entry[2] for entry in aborted_of(log)] == [marker]


def test_a_marker_goes_when_its_data_and_then_its_time_are_over(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"1"))
    marker = commit(log, 1)
    for number in range(6):
        # So that the batch is not among the last of its producer.
        write(log, 1, (b"a%d" % number, b""))
    commit(log, 1)
    write(log, None, (b"a", b"2"))
    roll(log)
    assert compact(log, now_ms=10_000)
    assert (0, "data") not in kinds(log) and (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=20_000)
    assert (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=20_999)
    assert (marker, "marker") in kinds(log)
    roll(log)
    assert compact(log, now_ms=21_000)
    assert (marker, "marker") not in kinds(log)


def test_the_marker_of_an_empty_batch_that_tells_a_sequence_stays(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"aborted"))
    marker = abort(log, 1)
    for number in range(4):
        roll(log)
        compact(log, now_ms=number * 100_000)
        assert kinds(log)[:2] == [(0, "empty"), (marker, "marker")]
    log.close()
    for path in segment_files(tmp_path, ".snapshot") + segment_files(tmp_path, ".txnindex"):
        path.unlink()
    again = open_log(tmp_path, CONFIG, clean=True, recovery_point=log.log_end_offset)
    assert again.producer_state.get(1).batches[-1].last_sequence == 0
    assert again.last_stable_offset(again.log_end_offset) == again.log_end_offset


def test_the_marker_that_alone_tells_an_epoch_stays(tmp_path):
    log = open_log(tmp_path, CONFIG)
    write(log, 1, (b"a", b"fenced"), epoch=0)
    marker = abort(log, 1, epoch=1)
    for number in range(4):
        roll(log)
        compact(log, now_ms=number * 100_000)
    assert (0, "data") not in kinds(log) and (0, "empty") not in kinds(log)
    assert (marker, "marker") in kinds(log)
    with pytest.raises(InvalidProducerEpochError):
        write(log, 1, KEY, epoch=0)
