"""Random schemas, rows that fit them, and filters on them."""

import decimal
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema
from storage_engine.protocol.typed.arrow_types import arrow_type

NAMES = st.sampled_from(["a", "b", "key", "value", "größe", 'q"q', "\\", "record", "NaN"])
DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(types.DecimalColumn, st.just(precision), st.integers(0, precision))
)
PLAIN_TYPES = st.one_of(
    st.just(types.BooleanColumn()),
    st.builds(types.IntegerColumn, st.sampled_from([8, 16, 32, 64])),
    st.builds(types.FloatColumn, st.sampled_from([32, 64])),
    DECIMALS,
    st.just(types.StringColumn()),
    st.just(types.BinaryColumn()),
    st.just(types.DateColumn()),
    st.builds(types.TimestampColumn, st.booleans()),
    st.just(types.IntervalColumn()),
)
MAP_KEYS = st.one_of(
    st.just(types.StringColumn()),
    st.just(types.StringColumn()),
    st.builds(types.IntegerColumn, st.sampled_from([32, 64])),
    st.just(types.DateColumn()),
)


def types_of(names: st.SearchStrategy[str]) -> st.SearchStrategy[types.ColumnType]:
    """Types whose fields have such names."""

    def nested(inner: st.SearchStrategy[types.ColumnType]) -> st.SearchStrategy[types.ColumnType]:
        fields = st.lists(
            st.builds(types.StructColumnField, names, inner, st.booleans()),
            min_size=1,
            max_size=3,
            unique_by=lambda field: field.name.casefold(),
        )
        return st.one_of(
            st.builds(types.ArrayColumn, inner, st.booleans()),
            st.builds(types.MapColumn, MAP_KEYS, inner, st.booleans()),
            st.builds(types.StructColumn, fields.map(tuple)),
        )

    return st.recursive(PLAIN_TYPES, nested, max_leaves=4)


TYPES = types_of(NAMES)
AVRO_TYPES = types_of(st.sampled_from(["a", "b", "key", "value", "long", "fixed", "_x9"]))
"""Types whose fields have names of Avro."""

STRINGS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "NaN",
            "Infinity",
            '"',
            "\\",
            '\\"',
            "{}",
            '{"a":1}',
            "\n",
            "\x00\x1f",
            "null",
            ":,[]",
            "é😀",
        ]
    ),
    st.text('ab\\"{', min_size=30, max_size=40),
)

WHOLE = {
    types.BooleanColumn(): st.booleans(),
    types.StringColumn(): STRINGS,
    types.BinaryColumn(): st.binary(max_size=40),
    types.DateColumn(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    types.IntervalColumn(): st.integers(-(1 << 60), 1 << 60).map(
        lambda us: timedelta(microseconds=us)
    ),
}


def values(column_type: types.ColumnType) -> st.SearchStrategy:
    """Values as `pa.array` takes them, none of them null outside."""
    match column_type:
        case types.IntegerColumn(bits):
            return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        case types.FloatColumn(bits):
            return st.floats(width=bits)
        case types.DecimalColumn(precision, scale):
            most = 10**precision - 1
            return st.integers(-most, most).map(
                lambda n: Decimal(n).scaleb(-scale, decimal.Context(prec=60))
            )
        case types.TimestampColumn(with_zone):
            moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
            return moments.map(lambda at: at.replace(tzinfo=UTC)) if with_zone else moments
        case types.ArrayColumn(element, nullable):
            return st.lists(maybe(element, nullable), max_size=3)
        case types.MapColumn(key, value, nullable):
            return st.dictionaries(values(key), maybe(value, nullable), max_size=3).map(
                lambda entries: list(entries.items())
            )
        case types.StructColumn(fields):
            return st.fixed_dictionaries(
                {field.name: maybe(field.type, field.nullable) for field in fields}
            )
        case _:
            return WHOLE[column_type]


def maybe(column_type: types.ColumnType, nullable: bool) -> st.SearchStrategy:
    return st.none() | values(column_type) if nullable else values(column_type)


@st.composite
def schemas(draw, most_columns=4, kinds=TYPES):
    names = [f"c{n}" for n in range(draw(st.integers(1, most_columns)))]
    specs = [ColumnSpec(name, draw(kinds), draw(st.booleans())) for name in names]
    return new_schema(specs)


@st.composite
def schemas_and_rows(draw, least_rows=1, most_rows=12, kinds=TYPES):
    """A schema, and a pa.RecordBatch of its latest version."""
    schema = draw(schemas(kinds=kinds))
    count = draw(st.integers(least_rows, most_rows))
    return schema, draw(rows_of(schema, count))


@st.composite
def rows_of(draw, schema, count):
    arrays = []
    for column in schema.latest.visible:
        cells = st.lists(maybe(column.type, column.nullable), min_size=count, max_size=count)
        arrays.append(pa.array(draw(cells), arrow_type(column.type)))
    return pa.RecordBatch.from_arrays(arrays, [c.name for c in schema.latest.visible])


def comparable(value):
    """The value with something in place of NaN that equals itself, and -0.0 other than 0.0."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return (value, math.copysign(1.0, value))
        case dict():
            return {key: comparable(each) for key, each in value.items()}
        case list() | tuple():
            return [comparable(each) for each in value]
        case _:
            return value


TEXTS = st.text("ab\U00010000\uffff", max_size=3) | st.just("a" * 40) | st.just("a" * 40 + "\uffff")


@st.composite
def comparisons(draw, literals, column_id=1):
    operator = draw(st.sampled_from(list(Operator)))
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return Comparison(column_id, operator)
    if operator is Operator.IN:
        return Comparison(column_id, operator, tuple(draw(st.lists(literals, max_size=3))))
    return Comparison(column_id, operator, (draw(literals),))
