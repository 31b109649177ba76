"""Numbers without nulls are read without Arrow, and are those that Arrow reads."""

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header, seal
from storage_engine.protocol.typed.arrays.ipc_message import (
    column_kind,
    number_width,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.arrays.plain_numbers import find_numbers, joined_numbers
from storage_engine.protocol.typed.directory import encode_directory, read_directory
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    TOPIC_ID,
    decoded,
    encoded,
    frames_of,
    log_of,
    schema_of,
)
from storage_engine.tests.sampling import examples

NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
    pa.decimal128(38, 3),
]

OTHERS = [
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
]


def numbers(kind, count):
    data = np.arange(count * number_width(kind)).astype(np.uint8)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def message_of(array) -> memoryview:
    return memoryview(write_message(array)).cast("B")


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("count", [1, 3, 8, 1001])
def test_numbers_are_found_in_what_arrow_writes(kind, count):
    width = number_width(kind)
    whole = numbers(kind, count + 70)
    for start in (0, 1, 5):
        array = whole.slice(start, count)
        # The bits, as there are NaNs among the floats.
        expected = array.view(pa.binary(width)).to_pylist()
        found = find_numbers(message_of(array), width, count)
        assert found is not None
        joined = joined_numbers([found, found.part(0, 1)], kind)
        assert joined.view(pa.binary(width)).to_pylist() == expected + expected[:1]


def test_only_numbers_without_nulls_go_the_short_way():
    assert not any(map(number_width, OTHERS))
    assert find_numbers(message_of(pa.array([1, None, 3])), 8, 3) is None
    for others in (pa.array([1, 2]), pa.array([1, 2, 3], pa.int32()), pa.array([1, 2, 3, 4])):
        assert find_numbers(message_of(others), 8, 3) is None
    assert find_numbers(message_of(pa.array([1, 2, 3]))[:50], 8, 3) is None


@settings(max_examples=examples(2000), deadline=None)
@given(data=st.data())
def test_what_the_short_ways_take_of_damaged_messages_arrow_takes_too(data):
    """Numbers that are found are those that Arrow finds."""
    array = data.draw(
        st.sampled_from(
            [pa.array([7, 8, 9]), pa.array(["a", "bc", None]), pa.array([[1], [], None])]
        )
    )
    changed = bytearray(message_of(array))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    found = find_numbers(memoryview(changed), 8, 3)
    if found is not None:
        read = read_message(pa.py_buffer(bytes(changed)), column_kind(array.type))
        read.validate(full=True)
        assert read.equals(found.in_place(array.type)) and len(read) == 3


def test_a_decimal_beyond_its_type_is_refused_on_the_short_way():
    schema = schema_of("p DECIMAL(9,2)")
    small, large = (
        pa.Array.from_buffers(
            pa.decimal128(9, 2), 1, [None, pa.py_buffer(number.to_bytes(16, "little"))]
        )
        for number in (12, 10**12)
    )
    log = bytearray(log_of(encoded(pa.record_batch([small], ["p"]), schema)))
    at = bytes(log).rindex(bytes(write_message(small))[-16:])
    log[at : at + 16] = memoryview(large.buffers()[1])
    section = bytearray(log)[HEADER_BYTES:]
    (entry,) = read_directory(section).entries
    block = section[len(section) - entry.stored_bytes :]
    head = encode_directory(
        topic_id=TOPIC_ID, schema_version=1, rows=1, entries=[entry._replace(crc=crc32c(block))]
    )
    log[HEADER_BYTES:] = head + block
    seal(log, 0, read_header(log))
    for data in (log, frames_of(memoryview(log), plan(schema), schema)):
        with pytest.raises(CorruptRecordError, match="Arrow says: Decimal value"):
            decoded(data, schema, framed=data is not log)
