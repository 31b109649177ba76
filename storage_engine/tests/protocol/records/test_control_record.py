"""Control batches, and the single varints of their record."""

from storage_engine.protocol.records.control_record import read_varint
from storage_engine.tests.protocol.naive_codec import varint


def test_a_single_varint_is_read_with_the_position_after_it():
    data = b"\x00" + varint(-70_000) + b"\x00"
    assert read_varint(memoryview(data), 1, len(data)) == (-70_000, len(data) - 1)
