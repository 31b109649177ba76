"""Prepares producers' batches as the settings of their topic demand: checks keys (cleanup.policy
with `compact`), compresses with another codec (compression.type).

It uses no state of the log, so that it can run beside the event loop: other clients should not wait
for decompression, checks and compression. Source: R-LOG7, R-LOG10.
"""

from typing import NamedTuple

from storage_engine.core.errors import (
    CorruptRecordError,
    DecompressedTooLargeError,
    InvalidRecordError,
    RecordTooLargeError,
)
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from storage_engine.protocol.records.recompression import recompressed
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    Codec,
    iter_headers,
    validate_for_append,
)
from storage_engine.protocol.records.record_keys import WALKED_RECORDS_MAX, check_batch_keys

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The codec that each `compression.type` of a topic stores; None: the producer's."""


class Requirement(NamedTuple):
    """The demands of a topic's settings on batches."""

    keys: bool
    """True when every record must have a key."""
    codec: Codec | None
    """The codec for batches; None: any."""

    def accepts_columns(self, columns: BatchColumns) -> bool:
        """Return True when batches outside of transactions can be appended as they are."""
        codec = self.codec
        if self.keys or codec is None:
            return False
        return columns.attributes.count(codec) == len(columns)

    def is_settled_at_once(self, records: memoryview) -> bool:
        """Return True when an append can be accepted or refused at once, with no decompression: its
        codec is right, and where keys are demanded, it has few records to check."""
        count = 0
        try:
            for _, header in iter_headers(records):
                if self.codec not in (None, header.compression):
                    return False
                count += header.records_count
                if self.keys and (header.compression or count > WALKED_RECORDS_MAX):
                    return False
        except CorruptRecordError:
            # The append reports the error.
            pass
        return True


def requirement_of(config: LogConfig) -> Requirement | None:
    """Return the requirement of a topic's settings; None when any valid batch is appended as it
    is."""
    codec = _CODECS[config.compression_type]
    return Requirement(config.compacts, codec) if config.compacts or codec is not None else None


def prepare(
    records: memoryview,
    requirement: Requirement,
    *,
    max_message_bytes: int,
    allow_transactional: bool,
) -> memoryview:
    """Return the batches of one append as they are to be stored, in memory of their own unless they
    are unchanged. Raises the KafkaError that their producer is to get. Runs on any thread.
    """
    batches = validate_for_append(
        records, max_message_bytes=max_message_bytes, allow_transactional=allow_transactional
    )
    parts: list[BytesLike] = []
    room = MAX_DECOMPRESSED_BYTES
    for position, header in batches:
        batch = records[position : position + header.size_in_bytes]
        codec = requirement.codec
        if codec is not None and header.compression == codec:
            codec = None
        if codec is None and not requirement.keys:
            parts.append(batch)
            continue
        section = _section(header, batch, room)
        room -= len(section)
        if requirement.keys:
            check_batch_keys(header, batch, section)
        parts.append(batch if codec is None else recompressed(header, section, codec))
    if all(isinstance(part, memoryview) for part in parts):
        return records
    return memoryview(bytearray().join(parts))


def _section(header: BatchHeader, batch: memoryview, room: int) -> BytesLike:
    try:
        return decompress(header.compression, batch[HEADER_BYTES:], max_bytes=room)
    except DecompressedTooLargeError:
        raise RecordTooLargeError(
            f"the record batches of one request for one partition decompress to more than"
            f" {MAX_DECOMPRESSED_BYTES} bytes: send smaller batches"
        ) from None
    except CorruptRecordError as error:
        raise InvalidRecordError(f"a record batch can't be decompressed: {error}") from None
