"""Nulls where a schema allows none."""

import pytest

from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.tests.protocol.typed.logs import encoded, rows_from, schema_of


def test_nulls_deep_inside_are_found_in_their_row():
    schema = schema_of("m MAP<STRING, ARRAY<STRUCT<x: INT NOT NULL>>>")
    good = {"m": [("a", [{"x": 1}, None]), ("b", None)]}
    bad = {"m": [("a", []), ("b", [{"x": 1}, {"x": None}])]}
    rows = rows_from(schema, [{"m": None}, good, good, bad])
    with pytest.raises(RowsDoNotFitError, match="row 3 has null inside"):
        encoded(rows, schema)
    assert len(encoded(rows.slice(0, 3), schema)) == 1
