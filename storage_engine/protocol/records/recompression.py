"""A record batch with another codec: its records as one block, compressed anew.

The records are the same bytes as before. In the header only the codec, the length and the CRC
change; producer, times and transaction stay as they are. Source: the record batch format of the
Kafka protocol.
"""

from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    BytesLike,
    Codec,
    seal,
)


def recompressed(header: BatchHeader, section: BytesLike, codec: Codec) -> bytearray:
    """Return the whole batch of that header; `section` has its records, decompressed."""
    block = compress(codec, section)
    batch = bytearray(HEADER_BYTES) + block
    fresh = header._replace(
        length=len(batch) - LENGTH_END, attributes=header.attributes & ~CODEC_MASK | codec
    )
    seal(batch, 0, fresh)
    return batch
