"""Columns of every binary type become records, and others are refused."""

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.protocol.records.made_records import one_batch, values_of


def test_null_and_empty_stay_apart():
    keys = pa.array([None, b"", b"k"], pa.binary())
    values = pa.array([b"", None, b"v"], pa.binary())
    decoded = decode_batches(one_batch(values, keys=keys).data)
    assert decoded.keys.to_pylist() == [None, b"", b"k"]
    assert decoded.values.to_pylist() == [b"", None, b"v"]


def test_column_of_nulls_is_a_column_of_tombstones():
    decoded = decode_batches(one_batch(pa.nulls(3), keys=pa.array([b"a", b"b", b"c"])).data)
    assert decoded.values.to_pylist() == [None] * 3
    assert decoded.values.type == pa.binary()


def test_null_slot_that_hides_bytes_is_written_as_null():
    """Arrow allows a null row to span bytes."""
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    values = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"abcd")]
    )
    assert values.to_pylist() == [None, b"cd"]
    assert values_of(one_batch(values).data) == [None, b"cd"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_all_binary_and_string_types_are_written(kind):
    column = pa.array(["one", None, "", "three and more than twelve bytes"], pa.string()).cast(kind)
    decoded = decode_batches(one_batch(column, keys=column).data)
    expected = [b"one", None, b"", b"three and more than twelve bytes"]
    assert decoded.values.to_pylist() == expected
    assert decoded.keys.to_pylist() == expected


def test_binary_of_fixed_size_is_written():
    assert values_of(one_batch(pa.array([b"abc", None], pa.binary(3))).data) == [b"abc", None]


def test_other_types_are_refused_by_name():
    with pytest.raises(InvalidRecordError, match="the value column has type int64: cast it"):
        encode_batches(pa.array([1]))
    with pytest.raises(InvalidRecordError, match="the key column has type double"):
        encode_batches(pa.array([b"v"]), pa.array([1.5]))
    with pytest.raises(InvalidRecordError, match="the headers column has type string"):
        encode_batches(pa.array([b"v"]), headers=pa.array(["h"]))
    with pytest.raises(InvalidRecordError, match="the timestamp column has type string"):
        encode_batches(pa.array([b"v"]), timestamps_ms=pa.array(["now"]))


def test_chunked_arrays_are_written_as_one():
    chunked = pa.chunked_array([[b"a", b"b"], [], [None], [b"c"]], pa.binary())
    single = pa.chunked_array([[b"1", b"2", b"3", b"4"]], pa.binary())
    decoded = decode_batches(one_batch(chunked, keys=single).data)
    assert decoded.values.to_pylist() == [b"a", b"b", None, b"c"]
    assert decoded.keys.to_pylist() == [b"1", b"2", b"3", b"4"]
