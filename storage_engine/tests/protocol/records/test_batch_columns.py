"""Many batches at once: a run of good ones, and all that makes it none."""

import pytest

from storage_engine.protocol.records.batch_columns import MAX_OFFSET, end_of_batches, stored_run
from storage_engine.protocol.records.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    patch,
    read_header,
    seal,
)
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_batch

EPOCH = 4


def batch(first, *, last=None, attributes=0, epoch=EPOCH):
    """Two records, and an offset beside theirs that compaction took a record from."""
    last = first + 2 if last is None else last
    records = [NaiveRecord(first + n, 1000 + n, None, b"v") for n in range(2)]
    data = bytearray(
        encode_batch(records, base_offset=first, last_offset=last, attributes=attributes)
    )
    patch(data, 0, base_offset=first, leader_epoch=epoch)
    return data


def run(*batches, next_offset=10):
    return stored_run(memoryview(b"".join(batches)), next_offset)


def test_good_batches_are_columns():
    first, second = batch(10), batch(13, attributes=TRANSACTIONAL_BIT)
    found = run(first, second)
    assert found is not None
    assert (found.offsets, found.size) == ([10, 13, 16], len(first) + len(second))
    assert [bool(each) for each in found.transactional] == [False, True]
    assert found.columns.counts == (2, 2)
    assert found.columns.sizes == [len(first), len(second)]
    assert found.columns.have_no_producer
    assert found.leader_epoch == EPOCH


def test_the_first_batches_end_where_their_lengths_say():
    data = b"".join(map(bytes, map(batch, (10, 13, 16))))
    one = len(data) // 3
    assert end_of_batches(memoryview(data), 2) == (2 * one, 2)
    assert end_of_batches(memoryview(data), 3) == (len(data), 3)
    assert end_of_batches(memoryview(data), 9) == (len(data), 3)
    # What is cut off goes with the last whole one, unless that is enough.
    assert end_of_batches(memoryview(data[: one + 70]), 9) == (one + 70, 2)
    assert end_of_batches(memoryview(data[: one + 9]), 9) == (one + 9, 1)
    assert end_of_batches(memoryview(data[: one + 9]), 1) == (one, 1)
    assert end_of_batches(memoryview(b""), 9) == (0, 0)
    wrong = bytes(batch(10)) + bytes(damaged(batch(13), length=48)) + bytes(batch(16))
    assert end_of_batches(memoryview(wrong), 9) == (len(wrong), 2)


def test_a_batch_that_is_cut_off_at_the_end_is_left_out():
    first, second = batch(10), batch(13)
    for end in (1, len(second) - 1):
        found = run(first, second[:-end])
        assert found is not None and found.size == len(first)
    assert run(first[:-1]) is None


def damaged(data, **fields):
    seal(data, 0, read_header(data)._replace(**fields))
    return data


def flipped(data):
    data[-2] ^= 1
    return data


@pytest.mark.parametrize(
    "other",
    [
        batch(14),
        batch(12),
        batch(13, epoch=EPOCH + 1),
        batch(13, attributes=CONTROL_BIT),
        flipped(batch(13)),
        damaged(batch(13), last_offset_delta=-1),
        damaged(batch(13), magic=1),
        damaged(batch(13), length=48),
    ],
    ids=["gap", "overlap", "epoch", "control", "crc", "delta", "magic", "length"],
)
def test_one_bad_batch_makes_it_no_run(other):
    assert run(batch(10)) is not None
    assert run(batch(10), other) is None


def test_a_run_ends_with_the_largest_offset():
    base = MAX_OFFSET - 3
    assert run(batch(base), next_offset=base) is not None
    assert run(batch(base + 1), next_offset=base + 1) is None
