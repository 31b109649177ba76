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


AVRO_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,6}", fullmatch=True) | st.sampled_from(
    ["long", "string", "key", "value", "fixed"]
)
"""Names that fields of Avro may have."""


def types_of(named: st.SearchStrategy[str]) -> st.SearchStrategy[ColumnType]:
    """Types whose fields have such names."""

    def nested(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
        return st.one_of(
            st.builds(ArrayColumn, inner, st.booleans()),
            st.builds(MapColumn, inner, inner, st.booleans()),
            _structs(named, inner),
        )

    return st.recursive(flat_types, nested, max_leaves=6)


def columns_of(
    column_names: st.SearchStrategy[str], named: st.SearchStrategy[str]
) -> st.SearchStrategy[list[ColumnSpec]]:
    """Columns of such names, with fields of such names."""
    return st.lists(
        st.builds(ColumnSpec, column_names, types_of(named), st.booleans()),
        min_size=1,
        max_size=5,
        unique_by=lambda column: column.name.casefold(),
    )


def _structs(
    named: st.SearchStrategy[str], inner: st.SearchStrategy[ColumnType]
) -> st.SearchStrategy[ColumnType]:
    fields = st.lists(
        st.builds(StructColumnField, named, inner, st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda field: field.name.casefold(),
    )
    return st.builds(StructColumn, fields.map(tuple))


types: st.SearchStrategy[ColumnType] = types_of(names)

columns = columns_of(column_names, names)
