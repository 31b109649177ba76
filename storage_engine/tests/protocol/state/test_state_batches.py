"""The coordinators' records as batches: a batch of a few records is made without columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.records.record_batch import HEADER_BYTES, validate_for_append
from storage_engine.protocol.records.record_encoder import LARGEST_BATCH_BYTES, encode_batches
from storage_engine.protocol.state.state_batches import FEW, encode_parts, encode_raw, iter_raw
from storage_engine.tests.sampling import examples

ENTRIES = st.lists(
    st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=300)),
    min_size=1,
    max_size=2 * FEW,
)


def in_columns(entries: list[tuple[bytes, bytes | None]], now_ms: int) -> bytes:
    keys, values = zip(*entries, strict=True)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        now_ms=now_ms,
        batch_bytes=LARGEST_BATCH_BYTES,
    )
    return bytes(batch.data)


@settings(max_examples=examples(60), deadline=None)
@given(ENTRIES, st.integers(0, 2**45))
def test_a_few_entries_are_the_bytes_that_columns_make(entries, now_ms):
    batch = encode_raw(entries, now_ms=now_ms)
    assert bytes(batch) == in_columns(entries, now_ms)
    validate_for_append(batch, max_message_bytes=len(batch))
    assert [(key, value) for _, key, value in iter_raw(batch, "log")] == entries
    batch[0] = 1  # the log sets its first offset


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 2**20])
def test_lengths_of_all_sizes_are_the_same(count, size):
    entries: list[tuple[bytes, bytes | None]] = [(b"k", b"v" * size), (b"k" * 64, None)] * count
    entries = entries[:count]
    assert bytes(encode_raw(entries, now_ms=1)) == in_columns(entries, 1)


def test_entries_that_are_tied_are_never_in_two_batches():
    entries = [(b"k%d" % n, b"v" * 300) for n in range(9)]
    parts = encode_parts(entries, now_ms=1, part_bytes=1000, tied={2, 3, 4, 5, 8})
    # Two would fit into a batch, and three would not.
    assert [count for count, _ in parts] == [1, 5, 1, 2]
    assert [entry[1:] for _, batch in parts for entry in iter_raw(batch, "log")] == entries


def test_what_a_log_does_not_take_as_one_batch_is_several_in_order():
    large = (b"large", b"x" * 3000)
    entries = [(b"k%d" % n, b"v" * 100) for n in range(100)] + [large, (b"gone", None)]
    parts = encode_parts(entries, now_ms=1, part_bytes=1000)
    assert sum(count for count, _ in parts) == len(entries)
    assert [entry[1:] for _, batch in parts for entry in iter_raw(batch, "log")] == entries
    sizes = [(count, len(batch)) for count, batch in parts]
    assert all(size <= 1000 + HEADER_BYTES for count, size in sizes if count > 1)
    assert [count for count, size in sizes if size > 2000] == [1]
    ((count, whole),) = encode_parts(entries, now_ms=1, part_bytes=1 << 20)
    assert (count, whole) == (len(entries), encode_raw(entries, now_ms=1))
