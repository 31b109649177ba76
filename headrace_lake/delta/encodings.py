"""How the columns of a data file are encoded, chosen by measure for each type.

    strings                           dictionary
    integers, dates and timestamps    DELTA_BINARY_PACKED
    all others                        plain

Arrow's default, a dictionary for every column, takes half as much processor time again, and a third
more bytes, for rows of mixed columns: columns with many values fill a dictionary that is thrown
away.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

_PACKED = "DELTA_BINARY_PACKED"


class WriterOptions(NamedTuple):
    """Options of Arrow's writer, with their names there."""

    use_dictionary: list[str]
    """Paths of columns in the file."""
    column_encoding: dict[str, str]
    """By the paths of columns."""
    compression: str = "zstd"
    compression_level: int = 1
    version: str = "2.6"
    coerce_timestamps: str | None = None
    store_schema: bool = False


def writer_options(schema: pa.Schema) -> WriterOptions:
    """Return the options for a file with this schema."""
    leaves = [each for field in schema for each in _leaves(field.name, field.type)]
    return WriterOptions(
        use_dictionary=[path for path, kind in leaves if _is_text(kind)],
        column_encoding={path: _PACKED for path, kind in leaves if _is_whole(kind)},
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the single values, with the names that the format gives to their places."""
    if pa.types.is_struct(kind):
        for each in range(kind.num_fields):
            field = kind.field(each)
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_whole(kind: pa.DataType) -> bool:
    is_time = pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    return bool(is_time or pa.types.is_integer(kind))
