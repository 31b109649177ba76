"""Control records: markers as Kafka writes them, and bytes that are none. KIP-98."""

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
)
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.control_record import (
    encode_marker,
    read_marker,
    with_delete_horizon,
)
from storage_engine.protocol.records.record_batch import crc_matches, read_header


def test_a_marker_is_the_record_that_kafka_writes():
    batch = encode_marker(7, 3, TransactionMarker(True, 9), timestamp_ms=1234)
    header = read_header(batch)
    assert crc_matches(batch, 0, len(batch)) and header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    # length 16; attributes, deltas 0; key of 4 bytes: version 0, type 1; value of 6: version 0,
    # coordinator epoch 9; no headers
    assert bytes(batch[61:]).hex() == "20000000" + "0800000001" + "0c000000000009" + "00"
    assert read_marker(batch) == TransactionMarker(True, 9)
    abort_batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    assert read_marker(abort_batch) == TransactionMarker(False, 9)


@pytest.mark.parametrize("horizon_ms", [0, 1234, 5_000_000_000_000])
def test_a_marker_with_a_delete_horizon_says_the_same(horizon_ms):
    batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    changed = with_delete_horizon(batch, horizon_ms)
    header = read_header(changed)
    assert crc_matches(changed, 0, len(changed))
    assert read_marker(changed) == TransactionMarker(False, 9)
    assert header.base_timestamp == horizon_ms and header.attributes & 0x40
    assert header.max_timestamp == 1234
    assert read_marker(with_delete_horizon(changed, 77)) == TransactionMarker(False, 9)


def test_every_byte_of_a_control_record_may_be_wrong():
    batch = encode_marker(7, 3, TransactionMarker(False, 9), timestamp_ms=1234)
    for position in range(61, len(batch)):
        for value in range(256):
            damaged = bytearray(batch)
            damaged[position] = value
            try:
                read_marker(damaged)
            except CorruptRecordError as error:
                assert "control batch at offset 0" in str(error)
