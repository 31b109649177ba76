"""A column's bytes become no more memory than its entry and the limit say."""

import struct

import pyarrow as pa
import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.typed.arrays.ipc_message import write_message
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
