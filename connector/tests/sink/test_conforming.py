"""Columns of a DataFrame get the exact types of a topic's, and keep their values."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from connector.sink.typed.conforming import conformed
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.protocol.typed.arrow_types import arrow_type

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _type(ddl):
    return parse_ddl(f"c {ddl}")[0].type


@pytest.mark.parametrize(
    ("ddl", "given", "arrow"),
    [
        ("BIGINT", [1, None, -3], pa.int8()),
        ("DOUBLE", [1.5, None], pa.float32()),
        ("DOUBLE", [1, None], pa.int32()),
        ("DECIMAL(20,3)", [Decimal("1.25"), None], pa.decimal128(5, 2)),
        ("DECIMAL(21,2)", [2**63 - 1, -(2**63), None], pa.int64()),
        ("STRING", ["a", None], pa.large_string()),
        ("BINARY", [b"a", None], pa.large_binary()),
        ("TIMESTAMP", [NOON, None], pa.timestamp("us", tz="Europe/Berlin")),
        ("INTERVAL DAY TO SECOND", [timedelta(days=1), None], pa.duration("us")),
        ("ARRAY<BIGINT>", [[1, None], None, [], [2]], pa.list_(pa.int32())),
        (
            "MAP<STRING, ARRAY<DOUBLE>>",
            [[("a", [1.5]), ("b", None)], None, []],
            pa.map_(pa.string(), pa.list_(pa.float32())),
        ),
    ],
)
def test_narrower_values_are_widened_also_in_a_slice(ddl, given, arrow):
    column = pa.array([given[0], *given], arrow).slice(1)
    found = conformed(column, _type(ddl))
    assert found.type.equals(arrow_type(_type(ddl)), check_metadata=True)
    found.validate(full=True)
    assert found.to_pylist() == given


def test_fields_are_put_in_the_topics_order_and_missing_ones_are_null():
    given = [{"B": 1, "a": "x"}, None, {"B": None, "a": None}]
    column = pa.array([None, *given], pa.struct([("B", pa.int32()), ("a", pa.string())])).slice(1)
    found = conformed(column, _type("STRUCT<a: STRING, b: BIGINT, c: DATE>"))
    assert found.to_pylist() == [
        {"a": "x", "b": 1, "c": None},
        None,
        {"a": None, "b": None, "c": None},
    ]
    found.validate(full=True)


def test_a_column_of_the_right_type_is_not_touched():
    column = pa.array(["a"], pa.string())
    assert conformed(column, _type("STRING")) is column
