"""Messages of Arrow that are damaged, hostile, or not a column of their type."""

import pyarrow as pa
import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.typed.arrays.ipc_message import (
    column_kind,
    read_message,
    write_message,
)
from storage_engine.tests.protocol.typed.arrays.loaded_columns import load


def test_buffers_that_arrow_compressed_are_refused_before_it_reads_them():
    batch = pa.RecordBatch.from_arrays([pa.array(["a" * 5000] * 100)], names=["c"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    block = bytes(reader.read_next_message().serialize())
    with pytest.raises(CorruptRecordError, match="compressed by Arrow"):
        load(block, pa.string(), rows=100)


def test_messages_that_are_no_record_batch_or_have_metadata_are_refused():
    array = pa.array([1, 2])
    schema_message = bytes(pa.schema([("c", pa.int64())]).serialize())
    with pytest.raises(CorruptRecordError, match="no record batch"):
        load(schema_message, pa.int64(), rows=2)
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"a": "b"})
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    with pytest.raises(CorruptRecordError, match="metadata of its own"):
        load(bytes(reader.read_next_message().serialize()), pa.int64(), rows=2)


def test_a_message_has_nothing_behind_it_and_is_of_its_type():
    block = bytes(write_message(pa.array([1, 2])))
    assert load(block, pa.int64(), rows=2).to_pylist() == [1, 2]
    for changed in (block + b"\0" * 8, block[:-8], block[:6], b""):
        with pytest.raises(CorruptRecordError):
            load(changed, pa.int64(), rows=2)
    for kind in (pa.string(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])):
        with pytest.raises(CorruptRecordError):
            load(block, kind, rows=2)
    with pytest.raises(CorruptRecordError, match="2 values with 0 nulls, not 3 with 0"):
        load(block, pa.int64(), rows=3)
    two_columns = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "b"])
    with pytest.raises(CorruptRecordError):
        load(bytes(two_columns.serialize()), pa.int64())


def test_a_message_claims_no_memory_that_is_not_there():
    """Arrow gets sizes of buffers far beyond the message, and is to refuse them by itself."""
    block = bytearray(write_message(pa.array([1, 2, 3])))
    for position in range(8, len(block) - 24):
        for value in (0x7F, 0xFF):
            changed = bytearray(block)
            changed[position] = value
            try:
                read_message(pa.py_buffer(bytes(changed)), column_kind(pa.int64())).validate(
                    full=True
                )
            except (CorruptRecordError, pa.ArrowException):
                continue
