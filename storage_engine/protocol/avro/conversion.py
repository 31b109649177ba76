"""How the arrays of a writer's type become those of a reader's."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from storage_engine.protocol.avro.arrays import bits, taken, validity
from storage_engine.protocol.records.arrow_binary import numbers_in
from storage_engine.protocol.records.varints import Ints, Mask


class Misfits(NamedTuple):
    """Rows whose value the reader's type can't have."""

    rows: Mask
    reason: str


Converted: TypeAlias = tuple[pa.Array, list[Misfits]]
Conversion: TypeAlias = Callable[[pa.Array], Converted]


def unchanged(array: pa.Array) -> Converted:
    """The conversion of what is the same in both."""
    return array, []


def list_of(kind: pa.DataType, item: Conversion) -> Conversion:
    """Return the conversion of arrays to `kind`."""

    def convert(array: pa.Array) -> Converted:
        items, misfits = item(array.values)
        return _with_items(kind, array, items), _of_lists(array, misfits)

    return convert


def map_of(kind: pa.MapType, value: Conversion) -> Conversion:
    """Return the conversion of maps to `kind`."""
    entry = pa.struct([kind.key_field, kind.item_field])

    def convert(array: pa.Array) -> Converted:
        values, misfits = value(array.items)
        children = [array.keys, values]
        entries = pa.Array.from_buffers(entry, len(values), [None], children=children)
        return _with_items(kind, array, entries), _of_lists(array, misfits)

    return convert


def _with_items(kind: pa.DataType, array: pa.Array, items: pa.Array) -> pa.Array:
    buffers = [array.buffers()[0], array.buffers()[1]]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[items])


def _of_lists(array: pa.Array, misfits: list[Misfits]) -> list[Misfits]:
    """Return in which lists items do not fit."""
    if not misfits:
        return []
    offsets = numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1)
    found = []
    for rows, reason in misfits:
        before = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(rows, out=before[1:])
        found.append(Misfits(before[offsets[1:]] > before[offsets[:-1]], reason))
    return where_valid(array, found)


def where_valid(array: pa.Array, misfits: list[Misfits]) -> list[Misfits]:
    """Return the misfits without those in nulls, below which values stand for nothing."""
    valid = validity(array) if misfits else None
    if valid is None:
        return misfits
    return [Misfits(rows & valid, reason) for rows, reason in misfits]


def struct_of(kind: pa.StructType, fields: list[tuple[int, Conversion] | pa.Array]) -> Conversion:
    """Return the conversion of records to `kind`: for each of its fields the place of the writer's
    with a conversion, or an array of one value, which all have."""

    def convert(array: pa.Array) -> Converted:
        children: list[pa.Array] = []
        misfits: list[Misfits] = []
        for each in fields:
            if isinstance(each, tuple):
                number, conversion = each
                child, found = conversion(array.field(number))
                misfits += found
            else:
                child = repeated(each, len(array))
            children.append(child)
        buffers = [bits(validity(array))]
        converted = pa.Array.from_buffers(kind, len(array), buffers, children=children)
        return converted, where_valid(array, misfits)

    return convert


def repeated(one: pa.Array, count: int) -> pa.Array:
    """Return an array that has the only value of `one` in all rows."""
    return taken(one, np.zeros(count, np.int64))


def offsets_of(array: pa.Array) -> Ints:
    """Return where the texts of an array of strings or bytes begin, and the end of the last."""
    return numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1).astype(np.int64)
