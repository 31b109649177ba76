"""The directory of a typed batch: its columns, their places and their statistics.

A typed batch is a record batch whose attributes have TYPED_BIT. Its records section begins with the
directory; the columns follow one another behind it, in the directory's order, without gaps. Nothing
here looks into a column, and nothing needs Arrow.

    field             at bytes  meaning
    magic              0  4     "HRT1"
    directory_bytes    4  4     of the whole directory, these fields included
    directory_crc      8  4     CRC-32C of the directory's bytes from 12 on
    topic_id          12 16
    schema_version    28  4
    rows              32  4     as many as the header's records_count
    columns           36  2     the number of entries
    reserved          38  2     0
    entries           40        one for each column

    entry             at bytes  meaning
    column_id          0  4     of the schema; below 0: OFFSETS, TIMESTAMPS, HEADERS, TOMBSTONES
    place              4  4     of the column's first byte, counted from the end of the directory
    stored_bytes       8  4
    raw_bytes         12  4     after decompression
    crc               16  4     CRC-32C of the stored bytes
    null_count        20  4
    codec             24  1     0 none, 3 lz4, 4 zstd
    encoding          25  1     0 plain, 1 dictionary: see column_codec.py
    flags             26  1     1 has minimum and maximum; 2, 4: they are shortened; 8 has NaN
    minimum_bytes     27  1
    maximum_bytes     28  1
    minimum, maximum  29

Big endian. The minimum and the maximum leave out nulls and NaN:

    type                                        bytes
    boolean, integer, date, timestamp, interval     8  signed; days, or microseconds
    float                                           8  a double
    decimal                                        16  signed: the value without its point
    string, binary                            0 .. 32  the first bytes; strings end with a character
    nested                                             have none
"""

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import ColumnStatistics, Literal
from storage_engine.protocol.records.record_batch import BytesLike

MAGIC = b"HRT1"

OFFSETS = -1
"""The column of offset deltas, int32: only in batches that compaction left rows out of."""
TIMESTAMPS = -2
"""The column of timestamps, int64 milliseconds. Without it all rows have the header's time."""
HEADERS = -3
"""The column of record headers, list<struct<key: string, value: binary>>."""
TOMBSTONES = -4
"""The column of booleans that are true where a row only marks its key as deleted."""
SYSTEM_COLUMNS = (TIMESTAMPS, HEADERS, TOMBSTONES, OFFSETS)

PLAIN = 0
DICTIONARY = 1

CODEC_NONE = 0
CODEC_LZ4 = 3
CODEC_ZSTD = 4
_CODECS = (CODEC_NONE, CODEC_LZ4, CODEC_ZSTD)

HAS_BOUNDS = 1
MINIMUM_SHORTENED = 2
MAXIMUM_SHORTENED = 4
HAS_NAN = 8
_ALL_FLAGS = HAS_BOUNDS | MINIMUM_SHORTENED | MAXIMUM_SHORTENED | HAS_NAN

MAX_ENTRIES = types.MAX_COLUMNS + len(SYSTEM_COLUMNS)
MAX_ROWS = 4 << 20
"""The most rows of a batch: rows of nulls take no bytes here, but memory where they are read."""
MAX_BOUND_BYTES = 32
"""The longest minimum or maximum: longer strings are cut."""

HEAD = struct.Struct(">4siI16siiHH")
ENTRY = struct.Struct(">iiiiIiBBBBB")
_OUTLINE = struct.Struct(">iii4xI7xBB")
CRC_AT = 8
CRC_FROM = 12
TOPIC_ID_AT = 12
HEAD_BYTES = HEAD.size
ENTRY_BYTES = ENTRY.size
MAX_DIRECTORY_BYTES = HEAD_BYTES + MAX_ENTRIES * (ENTRY_BYTES + 2 * MAX_BOUND_BYTES)

_CRC = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_DECIMAL_BYTES = 16
_EXACT = Context(prec=60)
"""More digits than a decimal of 16 bytes has: nothing is rounded."""

assert HEAD_BYTES == 40
assert ENTRY_BYTES == _OUTLINE.size == 29


class ColumnEntry(NamedTuple):
    """The directory's entry of a column."""

    column_id: int
    place: int
    """The position of the column's first byte, counted from the end of the directory."""
    stored_bytes: int
    raw_bytes: int
    """The size after decompression."""
    crc: int
    """The CRC-32C of the stored bytes."""
    null_count: int
    codec: int
    encoding: int
    flags: int
    minimum: bytes
    maximum: bytes


Place = tuple[int, int, int, int]
"""A column's position, stored bytes and CRC, and the position of its entry in the directory. A
plain tuple, since there are many."""


class Directory(NamedTuple):
    """The directory of a typed batch. Entries are read when they are asked for: a projection needs
    only the columns' places."""

    schema_version: int
    rows: int
    data: bytes
    """The directory's bytes."""
    places: dict[int, Place]
    """The place of each column by its id, in the directory's order."""

    @property
    def topic_id(self) -> UUID:
        return UUID(bytes=self.data[TOPIC_ID_AT : TOPIC_ID_AT + 16])

    @property
    def size(self) -> int:
        """Return the size of the directory in bytes: the columns begin there."""
        return len(self.data)

    def column(self, column_id: int) -> ColumnEntry | None:
        """Return the column's entry; None when the batch does not have the column.
        CorruptRecordError when its numbers are impossible."""
        place = self.places.get(column_id)
        return None if place is None else self._entry(place[3])

    def null_counts(self) -> tuple[dict[int, int], int]:
        """Return the number of nulls of each column, and the bytes of all columns after
        decompression; CorruptRecordError when an entry's numbers are impossible."""
        counts: dict[int, int] = {}
        total = 0
        for column_id, place in self.places.items():
            _, _, _, raw, _, nulls, *_ = self.fields(place[3])
            counts[column_id] = nulls
            total += raw
        return counts, total

    @property
    def entries(self) -> tuple[ColumnEntry, ...]:
        """Return the entries of all columns; CorruptRecordError when one's numbers are
        impossible."""
        return tuple(self._entry(place[3]) for place in self.places.values())

    def fields(self, position: int) -> tuple[int, ...]:
        """Return the numbers of the entry at a position, as ENTRY has them; CorruptRecordError when
        they are impossible."""
        fields = ENTRY.unpack_from(self.data, position)
        _, _, stored, raw, _, nulls, codec, encoding, flags, low, high = fields
        if not (
            (raw == stored if codec == CODEC_NONE else raw > 0 and codec in _CODECS)
            and 0 <= nulls <= self.rows
            and encoding <= DICTIONARY
            and flags <= _ALL_FLAGS
            and low <= MAX_BOUND_BYTES
            and high <= MAX_BOUND_BYTES
        ):
            raise _impossible(fields)
        return fields

    def _entry(self, position: int) -> ColumnEntry:
        data, fields = self.data, self.fields(position)
        at = position + ENTRY_BYTES
        middle = at + fields[9]
        return tuple.__new__(
            ColumnEntry, (*fields[:9], data[at:middle], data[middle : middle + fields[10]])
        )


def read_directory(section: BytesLike, *, section_bytes: int | None = None) -> Directory:
    """Return the directory at the beginning of a records section; CorruptRecordError when it is
    damaged or contradicts itself, but for what is inside an entry.

    `section_bytes` is the size of the whole section, when `section` is only its beginning.
    """
    data, schema_version, rows, count = _read_head(section)
    room = (len(section) if section_bytes is None else section_bytes) - len(data)
    return Directory(schema_version, rows, data, _places(data, count, room))


def _places(data: bytes, count: int, room: int) -> dict[int, Place]:
    """Return where `count` columns lie; CorruptRecordError unless they fill `room` bytes."""
    size = len(data)
    places: dict[int, Place] = {}
    unpack = _OUTLINE.unpack_from
    position, place = HEAD_BYTES, 0
    try:
        for _ in range(count):
            column_id, at, stored, crc, low, high = unpack(data, position)
            if at != place or stored <= 0:
                raise _damaged(f"the column {column_id} has {stored} bytes from {at} on")
            places[column_id] = (at, stored, crc, position)
            place += stored
            position += ENTRY_BYTES + low + high
    except struct.error:
        raise _damaged(f"entry {len(places)} of {count} is cut off") from None
    if position != size or place != room or len(places) != count:
        raise _damaged(
            f"its {count} columns, {len(places)} of them different, end at byte {position} of"
            f" {size}, and take {place} of the {room} bytes behind it"
        )
    return places


def _read_head(section: BytesLike) -> tuple[bytes, int, int, int]:
    """Return a directory whose CRC is right, its schema version, its rows and columns."""
    available = len(section)
    if available < HEAD_BYTES:
        raise _damaged(f"it needs at least {HEAD_BYTES} bytes, {available} are there")
    magic, size, crc, _, version, rows, columns, reserved = HEAD.unpack_from(section)
    if magic != MAGIC:
        raise _damaged(f"it begins with {bytes(magic)!r}, not with {MAGIC!r}")
    if not HEAD_BYTES <= size <= min(available, MAX_DIRECTORY_BYTES):
        raise _damaged(f"it claims to have {size} bytes, {available} are there")
    data = bytes(memoryview(section)[:size])
    if crc != crc32c(data[CRC_FROM:]):
        raise _damaged("its CRC does not match")
    if not 0 <= rows <= MAX_ROWS or version < 1 or reserved or columns > MAX_ENTRIES:
        raise _damaged(
            f"{rows} rows of schema version {version} in {columns} columns, reserved: {reserved}"
        )
    return data, version, rows, columns


def encode_directory(
    *, topic_id: UUID, schema_version: int, rows: int, entries: Sequence[ColumnEntry]
) -> bytes:
    """Return the bytes of a directory. The places of the entries are computed here."""
    parts = [b""]
    place = 0
    for entry in entries:
        parts.append(
            ENTRY.pack(
                entry.column_id,
                place,
                *entry[2:9],
                len(entry.minimum),
                len(entry.maximum),
            )
        )
        parts += (entry.minimum, entry.maximum)
        place += entry.stored_bytes
    size = HEAD_BYTES + sum(map(len, parts))
    head = HEAD.pack(MAGIC, size, 0, topic_id.bytes, schema_version, rows, len(entries), 0)
    parts[0] = head
    directory = bytearray().join(parts)
    seal_directory(directory, 0, size)
    return bytes(directory)


def seal_directory(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Write the CRC of the directory [position, position + size)."""
    crc = crc32c(memoryview(buffer)[position + CRC_FROM : position + size])
    _CRC.pack_into(buffer, position + CRC_AT, crc)


def statistics_of(
    entry: ColumnEntry | None, column_type: types.ColumnType, rows: int
) -> ColumnStatistics | None:
    """Return the statistics of a column's values; None, as for unknown ones, when the producer's
    bounds don't fit the type. `entry` None stands for a column that the batch leaves out, because
    all of it is null."""
    if entry is None:
        return ColumnStatistics(rows=rows, null_count=rows)
    minimum: Literal | None = None
    maximum: Literal | None = None
    if entry.flags & HAS_BOUNDS:
        try:
            minimum = decode_bound(entry.minimum, column_type)
            maximum = decode_bound(entry.maximum, column_type)
        except CorruptRecordError:
            return None
    return ColumnStatistics(
        rows=rows,
        null_count=entry.null_count,
        minimum=minimum,
        maximum=maximum,
        minimum_is_exact=not entry.flags & MINIMUM_SHORTENED,
        maximum_is_exact=not entry.flags & MAXIMUM_SHORTENED,
        has_nan=bool(entry.flags & HAS_NAN),
    )


def decode_bound(data: bytes, column_type: types.ColumnType) -> Literal:
    """Return a minimum or maximum; CorruptRecordError when it does not fit the type."""
    try:
        match column_type:
            case types.BooleanColumn():
                return bool(_INT64.unpack(data)[0])
            case (
                types.IntegerColumn()
                | types.DateColumn()
                | types.TimestampColumn()
                | types.IntervalColumn()
            ):
                return int(_INT64.unpack(data)[0])
            case types.FloatColumn():
                return float(_DOUBLE.unpack(data)[0])
            case types.DecimalColumn(_, scale) if len(data) == _DECIMAL_BYTES:
                unscaled = int.from_bytes(data, "big", signed=True)
                return Decimal(unscaled).scaleb(-scale, _EXACT)
            case types.StringColumn():
                return data.decode()
            case types.BinaryColumn():
                return data
    except (struct.error, UnicodeDecodeError):
        pass
    raise _damaged(f"a minimum or maximum of {len(data)} bytes does not fit the column's type")


def encode_bound(value: Literal, column_type: types.ColumnType) -> tuple[bytes, bool]:
    """Return the bytes of a minimum or maximum, and whether it is shortened."""
    match column_type:
        case types.FloatColumn():
            return _DOUBLE.pack(value), False
        case types.DecimalColumn(_, scale):
            unscaled = int(Decimal(str(value)).scaleb(scale, _EXACT))
            return unscaled.to_bytes(_DECIMAL_BYTES, "big", signed=True), False
        case types.StringColumn() | types.BinaryColumn():
            data = value if isinstance(value, bytes) else str(value).encode()
            if len(data) <= MAX_BOUND_BYTES:
                return data, False
            end = MAX_BOUND_BYTES
            if isinstance(value, str):
                while data[end] & 0xC0 == 0x80:
                    end -= 1
            return data[:end], True
        case _:
            return _INT64.pack(int(value)), False


def _impossible(fields: tuple[int, ...]) -> CorruptRecordError:
    return _damaged(f"the entry of column {fields[0]} has impossible numbers: {fields}")


def _damaged(reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"the directory of a typed batch is damaged: {reason}")
