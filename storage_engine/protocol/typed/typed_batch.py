"""A typed batch as a leader sees it: checked by its header and its directory alone.

The columns stay opaque here. Damage inside one is found by its decoder.
"""

from uuid import UUID

from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TYPED_BIT,
    BatchHeader,
    BytesLike,
)
from storage_engine.protocol.typed.directory import (
    HEAD,
    HEADERS,
    OFFSETS,
    TIMESTAMPS,
    TOMBSTONES,
    Directory,
    read_directory,
)

_PRODUCED_SYSTEM_COLUMNS = frozenset((TIMESTAMPS, HEADERS, TOMBSTONES))


def is_typed(header: BatchHeader) -> bool:
    """Return True when the batch has columns, not records: its section begins with a directory. A
    control batch never has, nor has a batch of which compaction has left no row."""
    return header.attributes & (TYPED_BIT | CONTROL_BIT) == TYPED_BIT and header.records_count > 0


def claimed_columns(buffer: BytesLike, position: int) -> int:
    """Return the number of columns that the batch at `position` claims, without any check."""
    at = position + HEADER_BYTES
    return int(HEAD.unpack_from(buffer, at)[6]) if at + HEAD.size <= len(buffer) else 0


def directory_of(header: BatchHeader, batch: BytesLike, *, is_head: bool = False) -> Directory:
    """Return the directory of a whole typed batch that begins at `batch`; CorruptRecordError names
    the offset. `is_head`: of the batch only header and directory are
    there, or some more."""
    size = header.size_in_bytes
    section = memoryview(batch)[HEADER_BYTES:size]
    try:
        directory = read_directory(section, section_bytes=size - HEADER_BYTES if is_head else None)
    except CorruptRecordError as error:
        raise damaged(header, str(error)) from None
    check_rows(header, directory)
    return directory


def check_rows(header: BatchHeader, directory: Directory) -> None:
    """CorruptRecordError when header and directory don't fit each other."""
    if directory.rows != header.records_count or header.attributes & CODEC_MASK:
        raise damaged(
            header,
            f"its header says {header.records_count} rows of codec"
            f" {header.attributes & CODEC_MASK}, its directory {directory.rows}",
        )


def checked_directory(header: BatchHeader, batch: BytesLike) -> Directory:
    """Return the directory, of which each entry is checked, too."""
    directory = directory_of(header, batch)
    try:
        directory.null_counts()
    except CorruptRecordError as error:
        raise damaged(header, str(error)) from None
    return directory


def damaged(header: BatchHeader, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the typed batch at offset {header.base_offset} is damaged: {reason}"
    )


def check_typed_batch(
    header: BatchHeader, batch: memoryview, *, schema: TopicSchema, topic_id: UUID
) -> None:
    """Make a leader's checks of a typed batch whose CRC and header fields are right already.

    InvalidRecordError for what no retry mends, UnknownSchemaVersionError and UNKNOWN_TOPIC_ID for a
    producer that knows more or less than this broker.
    """
    try:
        directory = directory_of(header, batch)
        nulls, raw = directory.null_counts()
    except CorruptRecordError as error:
        # The batch's CRC is right: its producer wrote it so.
        raise InvalidRecordError(str(error)) from None
    if directory.topic_id != topic_id:
        raise KafkaError(
            f"a typed batch is for the topic id {directory.topic_id}, the topic's is {topic_id}:"
            " it was created anew, ask for its schema again",
            ErrorCode.UNKNOWN_TOPIC_ID,
        )
    version = schema.version(directory.schema_version)
    if raw > MAX_DECOMPRESSED_BYTES:
        raise RecordTooLargeError(
            f"a typed batch has columns of {raw} bytes after decompression, at most"
            f" {MAX_DECOMPRESSED_BYTES} are allowed: send smaller batches"
        )
    _check_columns(nulls, directory.rows, schema, version)


def _check_columns(
    nulls: dict[int, int], rows: int, schema: TopicSchema, version: SchemaVersion
) -> None:
    """Check the columns, given by their numbers of nulls."""
    for column_id in nulls.keys() - version.by_id.keys() - _PRODUCED_SYSTEM_COLUMNS:
        what = "offsets" if column_id == OFFSETS else f"id {column_id}"
        raise InvalidRecordError(
            f"a typed batch has a column of {what}, which version {version.version} of the schema"
            " does not have"
        )
    key = schema.key
    tombstones = nulls.get(TOMBSTONES)
    if tombstones is not None and not key:
        raise InvalidRecordError(
            "a typed batch has tombstones, but the topic has no key columns to say what is gone"
        )
    if tombstones or nulls.get(TIMESTAMPS):
        raise InvalidRecordError("a typed batch has nulls among its timestamps or tombstones")
    for column in version.columns:
        if column.nullable or (tombstones is not None and column.column_id not in key):
            continue
        missing = nulls.get(column.column_id, rows)
        if missing:
            raise InvalidRecordError(
                f"a typed batch has {missing} nulls in the column '{column.name}', which is NOT"
                " NULL: give each row a value"
            )
