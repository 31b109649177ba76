"""JSON records as columns: every form of a value that fits, and limits."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.typed.arrays.json_parser import LARGE_BYTES, MOST_PREPARED_SIGNS
from storage_engine.tests.protocol.typed.json_support import DDL, records_of, rows_in, typed
from storage_engine.tests.protocol.typed.logs import schema_of


def test_large_integers_keep_their_digits_beside_one_with_a_point():
    schema = schema_of("id BIGINT")
    data = records_of(
        ['{"id": 9223372036854775807}', '{"id": 1.0}', '{"id": -9223372036854775808}']
    )
    assert [row["id"] for row in rows_in(typed(data, schema), schema)] == [2**63 - 1, 1, -(2**63)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"id": 1, "s": "NaN", "d": "NaN", "f": "-Infinity"}', {"s": "NaN", "f": -math.inf}),
        ('{"id": 1, "im": [{"key": 1, "value": "Infinity"}]}', {"im": [(1, math.inf)]}),
        ('{"id": 1, "m": {"d": 5, "\\"": 6, "": null}}', {"m": [("d", 5), ('"', 6), ("", None)]}),
        ('{"id": 1, "m": {} , "s": "{\\"m\\":{\\"a\\":1}}"}', {"m": [], "s": '{"m":{"a":1}}'}),
        ('\n{\n "id"\t: 1 ,\r\n "a" : [ 1 , null ] }\n', {"a": [1, None]}),
        (
            '{"id": 1, "at": "2026-01-01 02:00:00.5+02:00"}',
            {"at": datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)},
        ),
        ('{"\\u0069d": 1, "dec": 1e2}', {"dec": Decimal("100.00")}),
        ('{"id": 1, "dec": "12.50"}', {"dec": Decimal("12.50")}),
        ('{"id": 1, "d": NaN, "f": Infinity}', {"f": math.inf}),
        ('{"id": 1.0, "n": -0.0, "i": 1e3}', {"n": 0, "i": timedelta(milliseconds=1)}),
        ('{"id": 10E-1, "a": [2147483647.0, -1]}', {"a": [2147483647, -1]}),
        ('{"id": 1, "im": [{"key": 2.00, "value": 1}]}', {"im": [(2, 1.0)]}),
        ('{"id": 1, "m": {"a": 1.0}, "d": "NaN"}', {"m": [("a", 1)]}),
    ],
)
def test_json_that_fits_is_read(value, expected):
    schema = schema_of(DDL)
    (row,) = rows_in(typed(records_of([value]), schema), schema)
    assert row["id"] == 1 and {name: row[name] for name in expected} == expected


LARGE = 16 << 20
SCHEMA = schema_of("id BIGINT, s STRING, a ARRAY<INT>, m MAP<STRING, INT>")


def test_a_record_with_millions_of_small_parts_is_refused():
    members = b'"":1,' * (MOST_PREPARED_SIGNS // 2)
    with pytest.raises(
        InvalidRecordError, match=r"record 1 is not stored: .*: send smaller records"
    ):
        typed(records_of(["{}", b'{"m": {%s"a": 1}}' % members], batch_bytes=LARGE), SCHEMA)


def test_a_record_of_megabytes_of_text_is_taken():
    text = "x" * (2 * LARGE_BYTES)
    (row,) = rows_in(
        typed(records_of([f'{{"s": "{text}", "m": {{"a": 1}}}}'], batch_bytes=LARGE), SCHEMA),
        SCHEMA,
    )
    assert row == {"id": None, "s": text, "a": None, "m": [("a", 1)]}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused_and_overflows_no_stack(opening):
    for content in ('{"id": ', '{"a": ', '{"m": ', "", '{"unknown": '):
        with pytest.raises(InvalidRecordError, match="record 0 is not stored"):
            typed(records_of([content + opening * 100_000]), SCHEMA)
