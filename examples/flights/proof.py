"""Proves that the log is right to the last record: compares it with the source, without Spark.

Nothing here takes part in producing what it judges; it starts from the source tables and from the
rows of the log.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from examples.flights.schemas import DELAYS

FLIGHT_KEY = ("origin", "scheduled", "carrier", "flight")
WEATHER_KEY = ("origin", "observed")
RESULT_KEY = DELAYS.key

RESULT_SCHEMA = DELAYS.arrow

_SHOWN_DIFFERENCES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many of the expected rows were found exactly, and the first differences in words."""

    expected: int
    equal: int
    differences: list[str]

    @property
    def exact(self) -> bool:
        return self.equal == self.expected and not self.differences


def expected_results(flights: pa.Table, weather: pa.Table) -> pa.Table:
    """The results that the stream must have for every airport and hour, computed in one go."""
    delays = flights.group_by(["origin", "time_hour"]).aggregate(
        [
            ("hour", "max"),
            ([], "count_all"),
            ("dep_delay", "count"),
            ("dep_delay", "sum"),
            ("dep_delay", "max"),
        ]
    )
    reports = weather.select(
        ["origin", "time_hour", "hour", "temp", "wind_speed", "precip", "visib"]
    )
    both = delays.join(reports, ["origin", "time_hour"], join_type="full outer")
    departed = pc.fill_null(both["dep_delay_count"], 0)
    # The sum of no departures is null, as Spark's is.
    minutes = pc.if_else(pc.equal(departed, 0), None, both["dep_delay_sum"])
    return pa.table(
        {
            "airport": both["origin"],
            "hour": both["time_hour"],
            "hour_of_day": pc.coalesce(both["hour_max"], both["hour"]),
            "flights": pc.fill_null(both["count_all"], 0),
            "departed": departed,
            "delay_minutes": minutes,
            "mean_delay": pc.divide(minutes.cast(pa.float64()), departed.cast(pa.float64())),
            "max_delay": both["dep_delay_max"],
            **{name: both[name] for name in ("temp", "wind_speed", "precip", "visib")},
        }
    ).cast(RESULT_SCHEMA)


def parse(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """JSON objects with just the fields of `schema` as a table."""
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0]
    return pyarrow.json.read_json(
        io.BytesIO(lines.as_buffer()),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error"
        ),
    ).select(schema.names)


def latest_by_key(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key; rows of one key must be in the order of their offsets."""
    numbered = table.append_column("row", pa.array(np.arange(len(table))))
    return table.take(numbered.group_by(list(key)).aggregate([("row", "max")])["row_max"])


def repeats(table: pa.Table, key: Sequence[str]) -> int:
    """The number of rows beyond the first of each key."""
    return len(table) - len(table.group_by(list(key)).aggregate([]))


def compare(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> Comparison:
    """Rows of `found`, repeats aside, against `expected`, column by column."""
    rest = [name for name in expected.column_names if name not in key]
    distinct = found.group_by(found.column_names).aggregate([])
    joined = expected.append_column("expected", _true(expected)).join(
        distinct.append_column("found", _true(distinct)),
        list(key),
        join_type="full outer",
        right_suffix=" found",
    )
    same = pc.and_(pc.is_valid(joined["expected"]), pc.is_valid(joined["found"]))
    for name in rest:
        same = pc.and_(same, _same(joined[name], joined[f"{name} found"]))
    wrong = joined.filter(pc.invert(same))
    return Comparison(
        expected=len(expected),
        equal=pc.sum(same).as_py() or 0,
        differences=[
            _difference(row, key, rest) for row in wrong.slice(0, _SHOWN_DIFFERENCES).to_pylist()
        ],
    )


def _true(table: pa.Table) -> pa.Array:
    return pa.array(np.ones(len(table), dtype=bool))


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))


def _difference(row: dict[str, object], key: Sequence[str], rest: Sequence[str]) -> str:
    name = ", ".join(str(row[part]) for part in key)
    if row["found"] is None:
        return f"missing: {name}"
    if row["expected"] is None:
        return f"not expected: {name}"
    columns = [column for column in rest if row[column] != row[f"{column} found"]]
    return f"{name}: " + ", ".join(
        f"{column} is {row[f'{column} found']}, should be {row[column]}" for column in columns
    )
