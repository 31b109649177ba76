"""Checks that every record of some batches has a key, for topics with compaction.

A batch that can't be decoded is refused here, since compaction could never pass it later.

A few uncompressed records are read one by one; for more, numpy and Arrow are worth their fixed cost
and are loaded then. Source: R-LOG10.
"""

from storage_engine.core.errors import CorruptRecordError, InvalidRecordError
from storage_engine.protocol.records.control_record import varint_at
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, BytesLike, Codec

WALKED_RECORDS_MAX = 64
"""Up to this number a loop of a few microseconds a record is faster than the vectorised way."""

RECORDS_MAX = 1 << 20
"""The most records of one batch: a small batch may decompress to very many records."""

NAMED_MAX = 1_000
"""The most records that an error names: to write an answer takes about a microsecond for each."""

_REASON = "the record has no key: every record of a compacted topic must have one"


def check_keys(records: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
    """Raise InvalidRecordError when a record has no key, or a batch's records don't fit its
    header."""
    for position, header in batches:
        check_batch_keys(header, records[position : position + header.size_in_bytes])


def check_batch_keys(
    header: BatchHeader, batch: memoryview, section: BytesLike | None = None
) -> None:
    """Check one batch as `check_keys` does; `section` has its records, if they are decompressed."""
    if header.records_count > RECORDS_MAX:
        raise InvalidRecordError(
            f"a record batch for a compacted topic has {header.records_count} records, at most"
            f" {RECORDS_MAX} are taken: send smaller batches"
        )
    if header.compression == Codec.NONE and header.records_count <= WALKED_RECORDS_MAX:
        keyless = _walk(batch[HEADER_BYTES:], header)
    else:
        keyless = _decode(batch, header, section)
    if keyless:
        raise InvalidRecordError(
            f"{len(keyless)} of {header.records_count} records of a batch have no key:"
            " every record of a compacted topic must have one",
            records=[(place, _REASON) for place in keyless[:NAMED_MAX]],
        )


def _decode(batch: memoryview, header: BatchHeader, section: BytesLike | None) -> list[int]:
    """Return the places in the batch of the records without a key."""
    from storage_engine.protocol.records.record_filter import OpenBatches, StoredBatch

    stored = StoredBatch(header, batch)
    try:
        opened = OpenBatches(
            [stored.decompressed() if section is None else stored.holding(section)]
        )
    except CorruptRecordError as error:
        raise InvalidRecordError(str(error)) from None
    has_key = opened.has_key
    return [] if has_key.all() else (~has_key).nonzero()[0].tolist()


def _walk(data: memoryview, header: BatchHeader) -> list[int]:
    """Return what `_decode` returns."""
    position = 0
    keyless: list[int] = []
    try:
        for number in range(header.records_count):
            length, position = varint_at(data, position)
            end = position + length
            # The position is that after the attributes byte.
            _, at = varint_at(data, position + 1)
            delta, at = varint_at(data, at)
            key_length, at = varint_at(data, at)
            if key_length < 0:
                keyless.append(number)
            value_length, at = varint_at(data, at + max(key_length, 0))
            headers, at = varint_at(data, at + max(value_length, 0))
            if (
                at > end
                or end > len(data)
                or delta != number
                or min(key_length, value_length) < -1
                or headers < 0
                or (headers == 0 and at != end)
            ):
                raise ValueError(f"record {number} is damaged")
            position = end
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes come after the last record")
    except ValueError as error:
        raise InvalidRecordError(
            f"a record batch of {header.records_count} records is damaged: {error}"
        ) from None
    return keyless
