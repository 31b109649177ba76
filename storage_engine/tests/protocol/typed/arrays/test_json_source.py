"""JSON that Arrow can't read as it is: maps as objects, and NaN as text."""

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.json_support import as_json, records_of, rows_in, typed
from storage_engine.tests.protocol.typed.logs import encoded, log_of, schema_of
from storage_engine.tests.protocol.typed.typed_values import comparable, values
from storage_engine.tests.sampling import examples

NESTED_DDL = "m MAP<STRING, MAP<STRING, ARRAY<STRUCT<m: MAP<STRING, DOUBLE>, x: STRING>>>>"
NESTED = schema_of(NESTED_DDL)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(values(NESTED.latest.columns[0].type), min_size=1, max_size=4))
def test_maps_inside_maps_are_read(cells):
    rows = pa.RecordBatch.from_arrays(
        [pa.array(cells, plan(NESTED).arrow_schema.field(0).type)], names=["m"]
    )
    plain = as_json(log_of(encoded(rows, NESTED)), NESTED)
    assert comparable(rows_in(typed(plain, NESTED), NESTED)) == comparable(rows.to_pylist())


PIECES = st.sampled_from(
    [
        '{"m":',
        "{",
        "}",
        "[",
        "]",
        '"a"',
        '"m"',
        ":",
        ",",
        "1",
        "null",
        '"key"',
        '"value"',
        "\\",
        '"',
        " ",
    ]
)


@settings(max_examples=examples(1500), deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_no_json_is_never_taken(text):
    schema = schema_of("m MAP<STRING, INT>")
    try:
        rows = rows_in(typed(records_of([text, '{"m":{"z":0}}']), schema), schema)
    except RowsDoNotFitError as error:
        assert error.row == 0
    else:
        content = json.loads(text)["m"] if json.loads(text) else None
        entries = (
            None
            if content is None
            else list(content.items())
            if isinstance(content, dict)
            else [(e["key"], e.get("value")) for e in content]
        )
        assert rows == [{"m": entries}, {"m": [("z", 0)]}]
