"""Reads of one log: whole batches, within their bounds. R-LOG3."""

import pytest

from storage_engine.core.errors import (
    OffsetOutOfRangeError,
)
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.log.support import (
    append,
    fill,
)


def test_a_read_returns_whole_batches_within_the_limit(log):
    for _ in range(4):
        append(log, payload=bytes(39))
    assert len(log.reads.read(0, max_bytes=299)) == 200
    assert len(log.reads.read(0, max_bytes=300)) == 300
    assert len(log.reads.read(0, max_bytes=10_000)) == 400


def test_the_first_batch_is_returned_even_if_it_is_larger_than_the_limit(log):
    append(log, 2, payload=bytes(500))
    piece = log.reads.read(0, max_bytes=10)
    assert len(piece) == 561
    assert piece.end_offset == 2
    assert log.reads.read(0, max_bytes=10, at_least_one=False) is None


def test_a_read_from_within_a_batch_returns_that_batch(log):
    append(log, 5)
    append(log, 5)
    assert read_header(log.reads.read(7, max_bytes=100).view()).base_offset == 5


def test_a_read_ends_at_its_bound(log):
    fill(log, 20)
    end = log.log_end_offset
    for bound in range(end + 1):
        piece = log.reads.read(0, max_bytes=1 << 20, max_offset=bound)
        if piece is None:
            assert bound < 1
            continue
        assert piece.end_offset <= bound


def test_a_bound_within_a_batch_leaves_that_batch_out(log):
    append(log, 5)
    append(log, 5)
    assert log.reads.read(0, max_bytes=1000, max_offset=7).end_offset == 5
    assert log.reads.read(5, max_bytes=1000, max_offset=7) is None
    assert log.reads.read(0, max_bytes=1000, max_offset=3) is None


def test_a_read_at_the_end_returns_nothing(log):
    append(log, 3)
    assert log.reads.read(3, max_bytes=100) is None


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_the_log_names_the_valid_range(log, offset):
    append(log, 3)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 3\)") as raised:
        log.reads.read(offset, max_bytes=100)
    assert (raised.value.log_start_offset, raised.value.log_end_offset) == (0, 3)
