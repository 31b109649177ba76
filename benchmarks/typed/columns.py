"""The rows that are measured: taxi rides of 20 mixed columns, 483 bytes each as JSON.

Rule: a row follows from its id alone, so that a client and a task of Spark make the same rows. Ids
and `at` rise together: `at` is the time-ordered column.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TYPES = {
    "id": "BIGINT",
    "at": "TIMESTAMP",
    "dropped_at": "TIMESTAMP",
    "vendor": "INT",
    "passengers": "INT",
    "driver_id": "BIGINT",
    "meter": "BIGINT",
    "distance": "DOUBLE",
    "pickup_lat": "DOUBLE",
    "pickup_lon": "DOUBLE",
    "fare": "DOUBLE",
    "tip": "DECIMAL(9,2)",
    "total": "DECIMAL(12,2)",
    "city": "STRING",
    "payment": "STRING",
    "code": "STRING",
    "note": "STRING",
    "shared": "BOOLEAN",
    "tags": "ARRAY<STRING>",
    "rider": "STRUCT<name: STRING, rating: DOUBLE>",
}
"""The types of the columns in Spark's DDL, by name."""
ALL = tuple(TYPES)
TWO = ("id", "fare")
"""The columns of reads that select two of them."""
JSON_BYTES = 483
"""The average size of a row as JSON."""

FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)
STEP_US = 1_000
"""The step of `at` from one row to the next: Spark's JSON has milliseconds."""

PIECE_ROWS = 50_000
"""The number of rows that are made together."""

_FIRST_US = int(FIRST_TIME.timestamp()) * 1_000_000
_CITIES = ("Amsterdam", "Berlin", "Copenhagen", "Dublin", "Edinburgh", "Florence", "Gothenburg")
_PAYMENTS = ("cash", "credit card", "debit card", "invoice", "voucher")
_TAGS = ("airport", "toll", "luggage", "night", "pet", "wheelchair")
_MOST_TAGS = 3
_NULL_EVERY = 50
"""One row in so many has no `shared`."""

_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("dropped_at", pa.timestamp("us", tz="UTC")),
        pa.field("vendor", pa.int32()),
        pa.field("passengers", pa.int32()),
        pa.field("driver_id", pa.int64()),
        pa.field("meter", pa.int64()),
        pa.field("distance", pa.float64()),
        pa.field("pickup_lat", pa.float64()),
        pa.field("pickup_lon", pa.float64()),
        pa.field("fare", pa.float64()),
        pa.field("tip", pa.decimal128(9, 2)),
        pa.field("total", pa.decimal128(12, 2)),
        pa.field("city", pa.string()),
        pa.field("payment", pa.string()),
        pa.field("code", pa.string()),
        pa.field("note", pa.string()),
        pa.field("shared", pa.bool_()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("rider", pa.struct([("name", pa.string()), ("rating", pa.float64())])),
    ]
)


def ddl(names: Sequence[str] = ALL) -> str:
    """Return the DDL of these columns."""
    return ", ".join(f"{name} {TYPES[name]}" for name in names)


def make_rows(first_id: int, count: int, names: Sequence[str] = ALL) -> pa.RecordBatch:
    """Return the rows with the ids from `first_id` on, with these columns."""
    made = _Columns(np.arange(first_id, first_id + count, dtype=np.int64))
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.RecordBatch.from_arrays([getattr(made, name)() for name in names], schema=schema)


def made_of(first_id: int, count: int) -> Iterator[pa.RecordBatch]:
    """Yield `count` rows with all columns, in pieces."""
    for place in range(0, count, PIECE_ROWS):
        yield make_rows(first_id + place, min(PIECE_ROWS, count - place))


def share_where(share: float, rows: int) -> tuple[str, int]:
    """Return a filter that such a share of the first `rows` rows matches, a stretch of `at` from
    the middle on, and the number of these rows."""
    first, matching = rows // 2, max(1, round(rows * share))
    begin, end = (
        FIRST_TIME + timedelta(microseconds=each * STEP_US) for each in (first, first + matching)
    )
    return f"at >= TIMESTAMP '{_literal(begin)}' AND at < TIMESTAMP '{_literal(end)}'", matching


def _literal(time: datetime) -> str:
    """Return the literal of a time without its zone, which is UTC."""
    return time.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


class _Columns:
    """A method for each column, by its name."""

    def __init__(self, ids: "np.ndarray[Any, np.dtype[np.int64]]") -> None:
        self._ids = ids

    def id(self) -> pa.Array:
        return pa.array(self._ids)

    def at(self) -> pa.Array:
        return pa.array(_FIRST_US + self._ids * STEP_US, SCHEMA.field("at").type)

    def dropped_at(self) -> pa.Array:
        took_us = self._below(3_600_000, 1) * 1_000
        times = _FIRST_US + self._ids * STEP_US + took_us
        return pa.array(times, SCHEMA.field("dropped_at").type)

    def vendor(self) -> pa.Array:
        return pa.array(self._below(5, 2).astype(np.int32))

    def passengers(self) -> pa.Array:
        return pa.array((self._below(6, 3) + 1).astype(np.int32))

    def driver_id(self) -> pa.Array:
        return pa.array(self._below(10**12, 4))

    def meter(self) -> pa.Array:
        return pa.array(self._below(10**15, 5))

    def distance(self) -> pa.Array:
        return pa.array(self._below(5_000, 6) / 100)

    def pickup_lat(self) -> pa.Array:
        return pa.array((self._below(180_000_000, 7) - 90_000_000) / 1_000_000)

    def pickup_lon(self) -> pa.Array:
        return pa.array((self._below(360_000_000, 8) - 180_000_000) / 1_000_000)

    def fare(self) -> pa.Array:
        return pa.array(self._below(20_000, 9) / 100)

    def tip(self) -> pa.Array:
        return _decimals(self._below(5_000, 10), SCHEMA.field("tip").type)

    def total(self) -> pa.Array:
        return _decimals(self._below(1_000_000, 11), SCHEMA.field("total").type)

    def city(self) -> pa.Array:
        return _chosen(_CITIES, self._below(len(_CITIES), 12))

    def payment(self) -> pa.Array:
        return _chosen(_PAYMENTS, self._below(len(_PAYMENTS), 13))

    def code(self) -> pa.Array:
        """Return texts of which no two are equal, as it is with identifiers."""
        digits = [pc.utf8_lpad(_text(self._below(10**12, salt)), 12, "0") for salt in (14, 15)]
        return _joined(digits, "-")

    def note(self) -> pa.Array:
        street = _chosen(_CITIES, self._below(len(_CITIES), 16))
        house = _text(self._below(400, 17))
        return _joined(["was called from", house, street, "street, by the side door"], " ")

    def shared(self) -> pa.Array:
        return pa.array(self._below(2, 18) == 1, mask=self._ids % _NULL_EVERY == 0)

    def tags(self) -> pa.Array:
        sizes = self._below(_MOST_TAGS + 1, 19)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        # The place of each within its row.
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        chosen = (np.repeat(self._below(len(_TAGS), 20), sizes) + places) % len(_TAGS)
        field = SCHEMA.field("tags").type.value_field
        values = _chosen(_TAGS, chosen)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(field))

    def rider(self) -> pa.Array:
        name = _joined(["rider", _text(self._below(50_000, 21))], " ")
        rating = pa.array(self._below(41, 22) / 10 + 1)
        return pa.StructArray.from_arrays([name, rating], fields=list(SCHEMA.field("rider").type))

    def _below(self, bound: int, salt: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Return numbers from 0 to below `bound` that look random: the ids, mixed by SplitMix64."""
        mixed = (self._ids.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(_ODD[0])
        for shift, factor in ((30, _ODD[1]), (27, _ODD[2])):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return (mixed % np.uint64(bound)).astype(np.int64)


def _chosen(words: Sequence[str], places: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return pa.array(words).take(pa.array(places))


def _text(numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.Array:
    return pc.cast(pa.array(numbers), pa.string())


def _joined(parts: Sequence[pa.Array | str], separator: str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


def _decimals(
    hundredths: "np.ndarray[Any, np.dtype[np.int64]]", type_: pa.Decimal128Type
) -> pa.Array:
    """Return decimals of 16 bytes each, the lower half first; none is negative."""
    halves = np.zeros(2 * len(hundredths), dtype=np.int64)
    halves[::2] = hundredths
    return pa.Array.from_buffers(type_, len(hundredths), [None, pa.py_buffer(halves)])
