"""Rows that match a filter, as Spark compares."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema
from storage_engine.protocol.typed.arrays.row_filter import matching_rows
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import decoded, encoded, frames_of, log_of, schema_of
from storage_engine.tests.protocol.typed.typed_values import TEXTS, comparisons
from storage_engine.tests.sampling import examples

FLOATS = st.floats(-2, 2) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5, -0.0])
BOUNDED = st.integers(-3, 3) | st.sampled_from([(1 << 63) - 1, -(1 << 63)])

COLUMNS = {
    types.IntegerColumn(8): (st.integers(-3, 3), st.integers(-3, 3)),
    types.IntegerColumn(64): (BOUNDED, BOUNDED),
    types.FloatColumn(32): (st.floats(width=32) | st.integers(-2, 2).map(float), FLOATS),
    types.FloatColumn(64): (st.floats() | st.integers(-2, 2).map(float), FLOATS),
    types.DecimalColumn(4, 2): (st.decimals(-3, 3, places=2), st.decimals(-3, 3, places=2)),
    types.StringColumn(): (TEXTS, TEXTS),
    types.BinaryColumn(): (TEXTS.map(str.encode), TEXTS.map(str.encode)),
    types.BooleanColumn(): (st.booleans(), st.booleans()),
    types.DateColumn(): (st.integers(-3, 3), st.integers(-3, 3)),
    types.TimestampColumn(True): (st.integers(-3, 3), st.integers(-3, 3)),
}


def key_of(value):
    """A key that orders values as Spark does: NaN last, strings by their bytes."""
    if isinstance(value, float):
        return (1, 0) if math.isnan(value) else (0, value)
    if isinstance(value, str):
        return value.encode()
    return (0, value) if isinstance(value, int | Decimal) else value


def matches(value, comparison):
    """The meaning of a comparison, in plain Python."""
    if comparison.operator is Operator.IS_NULL:
        return value is None
    if value is None:
        return False
    if comparison.operator is Operator.IS_NOT_NULL:
        return True
    found = key_of(value)
    wanted = [key_of(each) for each in comparison.values]
    if comparison.operator is Operator.IN:
        return found in wanted
    (other,) = wanted
    return {
        Operator.EQ: found == other,
        Operator.NE: found != other,
        Operator.LT: found < other,
        Operator.LE: found <= other,
        Operator.GT: found > other,
        Operator.GE: found >= other,
    }[comparison.operator]


@settings(max_examples=examples(1000), deadline=None)
@given(data=st.data(), column_type=st.sampled_from(list(COLUMNS)))
def test_rows_and_batches_match_as_spark_compares(data, column_type):
    cells, literals = COLUMNS[column_type]
    rows = data.draw(st.lists(st.none() | cells, min_size=1, max_size=8))
    wanted = data.draw(st.lists(comparisons(literals), min_size=1, max_size=2))
    kind = arrow_type(column_type)
    plain = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(kind, kind)
    array = pa.array(rows, plain).view(kind) if plain != kind else pa.array(rows, kind)
    expected = [all(matches(value, each) for each in wanted) for value in rows]
    found = [True] * len(rows)
    for comparison in wanted:
        matching = matching_rows(array, column_type, comparison).tolist()
        found = [one and other for one, other in zip(found, matching, strict=True)]
    assert found == expected
    schema = new_schema([ColumnSpec("c", column_type)])
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    log = log_of(encoded(batch, schema, batch_bytes=1))
    read_plan = plan(schema, metadata=["_offset"], filter=wanted)
    pieces = decoded(frames_of(log, read_plan, schema), schema, read_plan, framed=True)
    offsets = [n for piece in pieces for n in piece.offsets.to_pylist()]
    assert offsets == [n for n, is_match in enumerate(expected) if is_match]
    assert pieces[-1].next_offset == len(rows), "a reader goes on behind what was skipped"


def test_a_filter_on_a_nested_column_is_refused_but_for_null():
    array = pa.array([[1], None])
    column_type = schema_of("a ARRAY<BIGINT>").latest.columns[0].type
    assert matching_rows(array, column_type, Comparison(1, Operator.IS_NULL)).tolist() == [0, 1]
    with pytest.raises(InvalidRequestError, match="can't compare values of type ARRAY<BIGINT>"):
        matching_rows(array, column_type, Comparison(1, Operator.EQ, (1,)))
