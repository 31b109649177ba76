"""A column's bytes become no more memory than its entry and the limit say."""

import struct
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed import column_types as types
from storage_engine.protocol.typed import column_codec
from storage_engine.protocol.typed.arrays.ipc_message import write_message
from storage_engine.protocol.typed.column_codec import bounds_of
from storage_engine.protocol.typed.directory import DICTIONARY
from storage_engine.tests.protocol.typed.arrays.loaded_columns import load


def test_text_that_is_not_utf8_is_damage():
    block = bytes(write_message(pa.array([b"\xff\xfe"])))
    with pytest.raises(CorruptRecordError, match="UTF"):
        load(block, pa.string())


def test_a_compressed_column_is_as_large_as_its_entry_says():
    plain = bytes(write_message(pa.array([0] * 10_000)))
    block = bytes(pa.Codec("zstd").compress(plain))
    assert len(load(block, pa.int64(), rows=10_000, raw_bytes=len(plain), codec=4)) == 10_000
    for size in (len(plain) - 8, len(plain) + 8, 1):
        with pytest.raises(CorruptRecordError):
            load(block, pa.int64(), rows=10_000, raw_bytes=size, codec=4)
    with pytest.raises(CorruptRecordError):
        load(block, pa.int64(), rows=10_000, raw_bytes=len(plain), codec=3)


def dictionary_block(values, indices):
    first, second = bytes(write_message(values)), bytes(write_message(indices))
    return struct.pack(">i", len(first)) + first + second


def test_a_dictionary_stands_for_no_more_than_the_limit():
    long = pa.array(["x" * 10_000, "y"])
    many = pa.array([0] * 1000, pa.int32())
    with pytest.raises(CorruptRecordError, match="stands for 10000000 bytes, at most 1048576"):
        load(dictionary_block(long, many), pa.string(), rows=1000, encoding=DICTIONARY)
    few = pa.array([1] * 1000, pa.int32())
    assert len(load(dictionary_block(long, few), pa.string(), rows=1000, encoding=DICTIONARY))


@pytest.mark.parametrize(
    "block",
    [
        dictionary_block(pa.array(["a"]), pa.array([1], pa.int32())),
        dictionary_block(pa.array(["a"]), pa.array([-1], pa.int32())),
        dictionary_block(pa.array([None], pa.string()), pa.array([0], pa.int32())),
        dictionary_block(pa.array([], pa.string()), pa.array([0], pa.int32())),
        dictionary_block(pa.array(["a"]), pa.array([0], pa.int32()))[:-8],
        b"\x7f\xff\xff\xff" + bytes(100),
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0",
    ],
)
def test_a_damaged_dictionary_is_refused(block):
    with pytest.raises(CorruptRecordError):
        load(block, pa.string(), encoding=DICTIONARY)


FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
NUMBERS = st.one_of(
    st.tuples(st.just((pa.float64(), types.FloatColumn(64))), st.lists(FLOATS, min_size=2)),
    st.tuples(
        st.just((pa.float32(), types.FloatColumn(32))), st.lists(st.floats(width=32), min_size=2)
    ),
    st.tuples(
        st.sampled_from(
            [(pa.int8(), types.IntegerColumn(8)), (pa.int64(), types.IntegerColumn(64))]
        ),
        st.lists(st.integers(-128, 127), min_size=2),
    ),
    st.tuples(
        st.sampled_from(
            [
                (pa.int64(), types.IntegerColumn(64)),
                (pa.timestamp("us", tz="UTC"), types.TimestampColumn(with_zone=True)),
                (pa.duration("us"), types.IntervalColumn()),
            ]
        ),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2),
    ),
    st.tuples(
        st.just((pa.date32(), types.DateColumn())),
        st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=2),
    ),
)


@given(NUMBERS, st.booleans())
@example(((pa.float64(), types.FloatColumn(64)), [5.0, -0.0, 0.0]), False)
@example(((pa.float64(), types.FloatColumn(64)), [5.0, 1.0, float("nan")]), False)
def test_bounds_are_those_that_arrows_kernels_find(case, with_null):
    (kind, column_type), numbers = case
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
    plain = kind if pa.types.is_floating(kind) or pa.types.is_integer(kind) else plain
    array = pa.array([*numbers, None] if with_null else numbers, plain).view(kind).slice(1)
    found = bounds_of(array, column_type)
    with patch.object(column_codec, "_of_numbers", return_value=None):
        assert found == bounds_of(array, column_type)
