"""The Avro schema of the columns of rows, as that of a typed topic (`avro_text.py`), but that each
field, element and value may be null, so that a schema with one column more is compatible with those
before it, and that decimals are of the fixed type of Spark's `to_avro`. The outermost record is
`topLevelRecord`. Pure.
"""

from connector.errors import OptionError
from storage_engine.core.errors import ConfigError
from storage_engine.core.schemas.avro.canonical import canonical_text
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_text import column_schema
from storage_engine.core.typed.column_types import ddl_of, nullable_form, parts_of

ROOT = "topLevelRecord"


def derived_schema(given: types.ColumnType, part: str) -> str:
    """The schema as text, of a value, whose type is a struct of all columns, or of a key.
    OptionError for a column that Avro has no name or type for."""
    name = "key" if part == "key" else ROOT
    _check_type(given, name)
    try:
        return canonical_text(column_schema(nullable_form(given), name, as_spark=True))
    except ConfigError as error:
        raise OptionError("BAD_COLUMN", str(error)) from None


def _check_type(given: types.ColumnType, name: str) -> None:
    match given:
        case types.MapColumn(types.StringColumn(), value, _):
            _check_type(value, name)
        case types.IntervalColumn() | types.MapColumn():
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' is {ddl_of(given)}, which Avro does not have: cast it, such"
                " as an interval to BIGINT, or the keys of a map to STRING",
            )
        case types.StructColumn(fields):
            for field in fields:
                _check_type(field.type, field.name)
        case _:
            for inner in parts_of(given):
                _check_type(inner, name)
