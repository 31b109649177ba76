"""Batches whose payload is a number: nobody on the way looks into it."""

import struct

from storage_engine.protocol.records.record_batch import HEADER_BYTES, LENGTH_END, BatchHeader, seal
from storage_engine.protocol.records.record_encoder import EncodedBatch


def numbered_batch(
    number: int, *, record_count: int = 3, padding: int = 0, base_offset: int = 0
) -> EncodedBatch:
    """A sealed batch that says it has `record_count` records; its last 8 bytes are `number`."""
    data = bytearray(HEADER_BYTES) + bytes(padding) + struct.pack(">q", number)
    header = BatchHeader(
        base_offset=base_offset,
        length=len(data) - LENGTH_END,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=record_count,
    )
    seal(data, 0, header)
    return EncodedBatch(data=memoryview(data), record_count=record_count)
