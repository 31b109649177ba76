"""Rows that don't fit their topic's schema are named."""

import pyarrow as pa
import pytest

from storage_engine.protocol.typed.arrays.row_fit import fitting_columns
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    decoded,
    encoded,
    log_of,
    rows_from,
    schema_of,
    table_of,
)


@pytest.mark.parametrize(
    ("rows", "row", "message"),
    [
        (pa.table({"id": [1, None]}), 1, r"row 1 has null in the column 'id', which is NOT NULL"),
        (pa.table({"n": pa.array([1], pa.int32())}), -1, "no column 'id', which is NOT NULL"),
        (pa.table({"id": [1], "m": [1]}), -1, "no column 'm': drop or rename it"),
        (pa.table({"id": pa.array([1], pa.int32())}), -1, "'id' has the Arrow type int32"),
        (pa.table({"id": [1], "ID": [2]}), -1, "'ID' twice"),
        (
            pa.table({"id": [1, 2], "a": pa.array([[1], [2, None]], pa.list_(pa.int32()))}),
            1,
            r"row 1 has null inside the column 'a' of type ARRAY<INT NOT NULL>",
        ),
        (
            pa.table(
                {
                    "id": [1],
                    "s": pa.Array.from_buffers(
                        pa.string(),
                        1,
                        [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")],
                    ),
                }
            ),
            -1,
            "'s' is no valid Arrow array",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(rows, row, message):
    schema = schema_of("id BIGINT NOT NULL, n INT, a ARRAY<INT NOT NULL>, s STRING")
    with pytest.raises(RowsDoNotFitError, match=message) as found:
        encoded(rows.to_batches()[0], schema)
    assert found.value.row == row


def test_a_few_rows_of_a_large_table_are_checked_without_the_rest():
    schema = schema_of("a ARRAY<STRUCT<x: STRING NOT NULL>>, m MAP<STRING, INT>")
    rows = rows_from(schema, [{"a": [{"x": f"{n}"}, None], "m": [("k", n)]} for n in range(2_000)])
    few = rows.slice(1_000, 2)
    for _, array in fitting_columns(few, schema, schema.latest):
        assert array.get_total_buffer_size() < 1000
    assert table_of(decoded(log_of(encoded(few, schema)), schema), plan(schema)).to_pylist() == (
        few.to_pylist()
    )
