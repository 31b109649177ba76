"""Filters: which rows match, which batches are skipped, and their bytes on the wire."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError, InvalidRequestError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.typed.arrays.row_filter import matching_rows
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.filter_bytes import decode_filter, encode_filter
from storage_engine.protocol.typed.frames import PROJECTED, SKIPPED, iter_frames
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.sampling import examples

FLOATS = st.floats(-2, 2) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5, -0.0])
BOUNDED = st.integers(-3, 3) | st.sampled_from([(1 << 63) - 1, -(1 << 63)])
TEXTS = st.text("ab\U00010000\uffff", max_size=3) | st.just("a" * 40) | st.just("a" * 40 + "\uffff")
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
OPERATORS = [each for each in Operator if each not in (Operator.IS_NULL, Operator.IS_NOT_NULL)]


def key_of(value):
    """What orders values as Spark does: NaN last, strings by their bytes."""
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


@st.composite
def comparisons(draw, literals, column_id=1):
    operator = draw(st.sampled_from(list(Operator)))
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return Comparison(column_id, operator)
    if operator is Operator.IN:
        return Comparison(column_id, operator, tuple(draw(st.lists(literals, max_size=3))))
    return Comparison(column_id, operator, (draw(literals),))


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


def test_batches_that_can_not_match_are_not_sent():
    schema = schema_of("id BIGINT, text STRING")
    rows = rows_from(schema, [{"id": n, "text": "x" * 100} for n in range(1000)])
    log = log_of(encoded(rows, schema, batch_bytes=5000))
    batches = len(list(iter_headers(log)))
    read_plan = plan(schema, filter=[Comparison(1, Operator.IN, (500, 510))])
    data = frames_of(log, read_plan, schema)
    frames = list(iter_frames(data))
    assert [frame.kind for frame in frames] == [SKIPPED, PROJECTED, SKIPPED] and batches > 10
    assert len(data) < len(log) / 8
    assert frames[0].next_offset == frames[1].base_offset
    assert frames[-1].next_offset == 1000 and frames[-1].leader_epoch == 3
    found = table_of(decoded(data, schema, read_plan, framed=True), read_plan)
    assert found.column("id").to_pylist() == [500, 510]


def test_a_filter_goes_by_columns_that_are_not_read():
    schema = schema_of("id BIGINT, text STRING")
    rows = rows_from(schema, [{"id": n, "text": str(n)} for n in range(100)])
    log = log_of(encoded(rows, schema))
    read_plan = plan(schema, ["text"], filter=[Comparison(1, Operator.GE, (98,))])
    assert set(read_plan.column_ids) == {1, 2}
    (piece,) = decoded(frames_of(log, read_plan, schema), schema, read_plan, framed=True)
    assert piece.batch.to_pydict() == {"text": ["98", "99"]}


def test_columns_added_later_are_null_in_old_batches_for_filters_too():
    schema = schema_of("id BIGINT")
    later = schema.evolved(
        [ColumnSpec("id", types.IntegerColumn(64)), ColumnSpec("n", types.StringColumn())]
    )
    log = log_of(encoded(rows_from(schema, [{"id": 1}]), schema))
    for operator, expected in ((Operator.IS_NULL, [1]), (Operator.IS_NOT_NULL, [])):
        read_plan = plan(later, ["id"], filter=[Comparison(2, operator)])
        pieces = decoded(frames_of(log, read_plan, later), later, read_plan, framed=True)
        assert [n for p in pieces for n in p.batch.column("id").to_pylist()] == expected


def test_batches_of_a_version_that_the_broker_does_not_know_yet_are_sent():
    schema = schema_of("id BIGINT")
    later = schema.evolved(
        [ColumnSpec("id", types.IntegerColumn(64)), ColumnSpec("n", types.StringColumn())]
    )
    log = log_of(encoded(rows_from(later, [{"id": 1}]), later))
    read_plan = plan(later, filter=[Comparison(1, Operator.EQ, (2,))])
    assert [frame.kind for frame in iter_frames(frames_of(log, read_plan, schema))] == [PROJECTED]
    assert [frame.kind for frame in iter_frames(frames_of(log, read_plan, later))] == [SKIPPED]


@pytest.mark.parametrize(
    ("names", "metadata", "wanted", "message"),
    [
        (["idd"], [], [], "id"),
        (["id", "ID"], [], [], "named twice"),
        (None, ["_offst"], [], "'_offst' is no metadata column: use _offset, _timestamp"),
        (None, [], [Comparison(9, Operator.IS_NULL)], "the column 9, which the schema's version 1"),
    ],
)
def test_a_plan_for_what_does_not_exist_is_refused(names, metadata, wanted, message):
    with pytest.raises(ConfigError, match=message):
        plan(schema_of("id BIGINT"), names, metadata, wanted)


def test_a_filter_on_a_nested_column_is_refused_but_for_null():
    array = pa.array([[1], None])
    column_type = schema_of("a ARRAY<BIGINT>").latest.columns[0].type
    assert matching_rows(array, column_type, Comparison(1, Operator.IS_NULL)).tolist() == [0, 1]
    with pytest.raises(InvalidRequestError, match="can't compare values of type ARRAY<BIGINT>"):
        matching_rows(array, column_type, Comparison(1, Operator.EQ, (1,)))


WIRE_VALUES = st.one_of(
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.decimals(-3, 3, places=2),
    TEXTS,
    TEXTS.map(str.encode),
    st.booleans(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(1, 9).flatmap(lambda n: comparisons(WIRE_VALUES, n)), max_size=4))
def test_a_filter_comes_back_from_its_bytes(wanted):
    found = decode_filter(encode_filter(wanted))
    # NaN is not equal to itself, and a whole number beyond 64 bits comes back as a decimal.
    assert [(c.column_id, c.operator) for c in found] == [(c.column_id, c.operator) for c in wanted]
    assert [list(map(str, c.values)) for c in found] == [list(map(str, c.values)) for c in wanted]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_hostile_filters_are_refused(data):
    encoded_filter = encode_filter(
        [Comparison(1, Operator.IN, (1, "text", Decimal("1.5"))), Comparison(2, Operator.IS_NULL)]
    )
    position = data.draw(st.integers(0, len(encoded_filter) - 1))
    changed = bytearray(encoded_filter)
    changed[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(changed)))
    try:
        decode_filter(changed[:end])
    except InvalidRequestError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "wanted",
    [
        [Comparison(1, Operator.IS_NULL)] * 101,
        [Comparison(1, Operator.IN, tuple(range(1000)))] * 5,
        [Comparison(1, Operator.EQ, ("x" * 70_000,))],
        [Comparison(1, Operator.EQ, (10**40,))],
        [Comparison(1, Operator.EQ, (Decimal("NaN"),))],
    ],
)
def test_a_filter_that_is_too_large_is_refused_before_it_is_sent(wanted):
    with pytest.raises(InvalidRequestError, match="a filter "):
        encode_filter(wanted)
