"""Random types and columns for properties."""

from hypothesis import strategies as st

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnSpec,
    ColumnType,
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

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalColumn, st.just(precision), st.integers(0, precision))
)

flat_types: st.SearchStrategy[ColumnType] = st.one_of(
    st.sampled_from(
        [
            BooleanColumn(),
            *map(IntegerColumn, (8, 16, 32, 64)),
            *map(FloatColumn, (32, 64)),
            StringColumn(),
            BinaryColumn(),
            DateColumn(),
            TimestampColumn(with_zone=True),
            TimestampColumn(with_zone=False),
            IntervalColumn(),
        ]
    ),
    decimals,
)

names = st.one_of(
    st.sampled_from(["id", "Fare", "not", "order", "a b", "a`b", "ü", "列", "2nd", "x.y", "a,b"]),
    st.text(min_size=1, max_size=8).filter(str.isprintable),
)
column_names = names.filter(lambda name: not name.startswith("_"))


def _structs(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    fields = st.lists(
        st.builds(StructColumnField, names, inner, st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda field: field.name.casefold(),
    )
    return st.builds(StructColumn, fields.map(tuple))


types: st.SearchStrategy[ColumnType] = st.recursive(
    flat_types,
    lambda inner: st.one_of(
        st.builds(ArrayColumn, inner, st.booleans()),
        st.builds(MapColumn, inner, inner, st.booleans()),
        _structs(inner),
    ),
    max_leaves=6,
)

columns = st.lists(
    st.builds(ColumnSpec, column_names, types, st.booleans()),
    min_size=1,
    max_size=5,
    unique_by=lambda column: column.name.casefold(),
)
