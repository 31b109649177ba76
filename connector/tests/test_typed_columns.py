"""The types of typed topics in Spark and in Arrow."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from connector.source.typed.typed_decoding import arrow_schema
from connector.source.typed.typed_read import ReadColumn, TypedRead
from connector.tests.test_schema import UTC
from connector.typed_columns import (
    METADATA_COLUMNS,
    column_type_of,
    metadata_types,
    spark_type,
)
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    DateColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    IntervalColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    TimestampColumn,
)
from storage_engine.tests.sampling import examples

PLAIN = [
    BooleanColumn(),
    *(IntegerColumn(bits) for bits in (8, 16, 32, 64)),
    FloatColumn(32),
    FloatColumn(64),
    DecimalColumn(38, 10),
    StringColumn(),
    BinaryColumn(),
    DateColumn(),
    TimestampColumn(True),
    TimestampColumn(False),
    IntervalColumn(),
]

TYPES = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        st.builds(ArrayColumn, inner),
        st.builds(MapColumn, inner, inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: StructColumn(
                tuple(StructColumnField(f"f{number}", each) for number, each in enumerate(types))
            )
        ),
    ),
    max_leaves=6,
)


@given(TYPES)
@settings(max_examples=examples(200))
def test_a_type_goes_to_spark_and_back_unchanged(column_type):
    assert column_type_of("c", spark_type(column_type)) == column_type


@given(st.lists(TYPES, max_size=3))
@settings(max_examples=examples(100))
def test_rows_have_exactly_the_arrow_types_that_spark_expects(types):
    columns = [
        ReadColumn(name=f"c{number}", column=f"c{number}", type=each)
        for number, each in enumerate(types)
    ]
    columns += [ReadColumn(name=name, column=name, type=None) for name in METADATA_COLUMNS]
    read = TypedRead(columns=tuple(columns), is_whole=False, where=None, schemas={})
    expected = to_arrow_schema(read.spark_schema(), **UTC)
    assert arrow_schema(read).equals(expected, check_metadata=True)


def test_every_metadata_column_has_a_type():
    assert set(metadata_types()) == set(METADATA_COLUMNS)
    assert StructType([StructField("_headers", metadata_types()["_headers"])]).simpleString() == (
        "struct<_headers:array<struct<key:string,value:binary>>>"
    )
