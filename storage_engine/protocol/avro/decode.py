"""Records of one schema become columns."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import InvalidRecordError
from storage_engine.core.schemas.avro.schema import AvroSchema, Record
from storage_engine.protocol.avro.arrays import taken, validity
from storage_engine.protocol.avro.arrow_types import VALUE, arrow_type, check_columns
from storage_engine.protocol.avro.compiled import reader_of, record_reader
from storage_engine.protocol.avro.damage import TOO_LONG, Damage, Reasons
from storage_engine.protocol.avro.record_bytes import Bodies, RecordBytes, Rows
from storage_engine.protocol.avro.record_reader import RecordReader
from storage_engine.protocol.avro.value_reader import ValueReader
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.records.varints import Mask

_PIECE_ROWS = 8_192
_PIECE_BYTES = 2 << 20
"""Rows are decoded in pieces of this size, or of one row: the processor's caches hold them."""


class Decoded(NamedTuple):
    """The columns of records."""

    batch: pa.RecordBatch
    """A row for each record; one that is null or damaged has a null in each column."""
    damaged: tuple[Damage, ...]
    """By row."""


class UndecodableRecordError(Exception):
    """A record that can't be decoded, where all are wanted."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.reason)
        self.damage = damage


class _Piece(NamedTuple):
    """The columns of some rows."""

    columns: list[pa.Array]
    wrong: Mask
    """The rows that are damaged."""
    too_long: Collection[int]
    """The rows among them that took too long."""
    first: int
    bodies: Bodies

    def damage(self, number: int, reasons: Reasons) -> Damage:
        """Return the fault of one of the rows."""
        if number in self.too_long:
            return Damage(self.first + number, TOO_LONG)
        return Damage(self.first + number, reasons.of(self.bodies.at(self.first + number)))


class Decoder:
    """Decodes records that were written with one schema. It keeps nothing of them."""

    def __init__(self, schema: AvroSchema, columns: Collection[str] | None = None) -> None:
        """`columns`: the names of those that are decoded; None for all. Others are skipped: their
        values are not checked, but that they end where they should. A schema whose outermost type
        is no record has one column, `value`. InvalidSchemaError when it can't have columns."""
        check_columns(schema)
        self._schema = schema
        root = schema.resolve(schema.root)
        self._reader: RecordReader
        if isinstance(root, Record):
            self._reader = record_reader(schema, root, columns)
        else:
            kind = pa.struct([pa.field(VALUE, arrow_type(schema, root))])
            wanted = frozenset({0} if columns is None or VALUE in columns else ())
            self._reader = RecordReader(kind if wanted else pa.struct([]), [_root(schema)], wanted)
        self.arrow_schema = pa.schema(list(self._reader.kind))
        """The columns that are decoded, in the schema's order."""
        self.values = self._reader.values
        """The values of one record, with each of its lists and maps as one."""

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        """Return the columns of these records, without any framing; InvalidRecordError when a
        column would have 2 GiB or more."""
        if not len(bodies):
            none = [pa.nulls(0, each.type) for each in self.arrow_schema]
            return Decoded(self._batch(none, 0), ())
        pieces: list[list[pa.Array]] = []
        damaged: list[Damage] = []
        reasons = Reasons(self._schema)
        for piece in self._pieces(Bodies.of(bodies), None, validity(bodies)):
            pieces.append(piece.columns)
            damaged += [
                piece.damage(each, reasons) for each in np.flatnonzero(piece.wrong).tolist()
            ]
        columns = _joined(pieces, len(bodies))
        return Decoded(self._batch(columns, len(bodies)), tuple(damaged))

    def decode_all(self, bodies: Bodies, room: ValueRoom) -> list[pa.Array]:
        """Return an array of each column of records without nulls; UndecodableRecordError for the
        first that is damaged, RecordTooLargeError where their lists need more than `room`."""
        if not len(bodies):
            return [pa.nulls(0, each.type) for each in self.arrow_schema]
        pieces: list[list[pa.Array]] = []
        for piece in self._pieces(bodies, room):
            if np.count_nonzero(piece.wrong):
                number = int(np.argmax(piece.wrong))
                raise UndecodableRecordError(piece.damage(number, Reasons(self._schema)))
            pieces.append(piece.columns)
        return _joined(pieces, len(bodies))

    def _pieces(
        self, bodies: Bodies, room: ValueRoom | None, present: Mask | None = None
    ) -> Iterator[_Piece]:
        for first, stop in _pieces(bodies):
            some = None if present is None else present[first:stop]
            yield self._piece(bodies, first, stop, some, room)

    def _piece(
        self, bodies: Bodies, first: int, stop: int, present: Mask | None, room: ValueRoom | None
    ) -> _Piece:
        starts, ends = bodies.starts[first:stop], bodies.ends[first:stop]
        base, count = int(starts[0]), stop - first
        source = RecordBytes(bodies.data[base : int(ends[-1])], ends - starts, room)
        rows = Rows(source, ends + (source.first - base), np.arange(count))
        starts = starts + (source.first - base)
        if present is not None:
            starts = np.where(present, starts, source.zeros)
        columns, after = self._reader.columns(rows, starts)
        wrong = (after != rows.ends) | source.broken
        if present is not None:
            wrong &= present
        if present is not None or np.count_nonzero(wrong):
            good = ~wrong if present is None else present & ~wrong
            columns = [taken(each, np.arange(count), good) for each in columns]
        return _Piece(columns, wrong, source.too_long, first, bodies)

    def _batch(self, columns: list[pa.Array], count: int) -> pa.RecordBatch:
        if not columns:
            return _without_columns(count)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def _joined(pieces: list[list[pa.Array]], count: int) -> list[pa.Array]:
    if len(pieces) == 1:
        return pieces[0]
    try:
        return [pa.concat_arrays(each) for each in zip(*pieces, strict=True)]
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(f"a column of {count} records is too large: {error}") from None


def _root(schema: AvroSchema) -> ValueReader:
    return reader_of(schema, schema.root)


def _without_columns(count: int) -> pa.RecordBatch:
    """Return rows of no columns."""
    return pa.RecordBatch.from_struct_array(
        pa.Array.from_buffers(pa.struct([]), count, [None], children=[])
    )


def _pieces(bodies: Bodies) -> Iterator[tuple[int, int]]:
    starts, ends = bodies.starts, bodies.ends
    first, count = 0, len(starts)
    while first < count:
        full = int(np.searchsorted(ends, int(starts[first]) + _PIECE_BYTES, side="right"))
        stop = max(first + 1, min(full, first + _PIECE_ROWS, count))
        yield first, stop
        first = stop


def decode(
    schema: AvroSchema, bodies: pa.BinaryArray, columns: Collection[str] | None = None
) -> Decoded:
    """Return the columns of records, as `Decoder.decode` does."""
    return Decoder(schema, columns).decode(bodies)
