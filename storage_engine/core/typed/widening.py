"""Which types a column's type may change to: those that hold every value of the old one."""

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.typed import column_types as types

_REMEDY = (
    "whole numbers may become larger ones, FLOAT may become DOUBLE, and DECIMAL may get more "
    "digits before the point; for another type add a column"
)


def check_widening(old: types.ColumnType, new: types.ColumnType, name: str) -> None:
    """ConfigError unless every value of `old` is one of `new`; `name` is the column's. Nested types
    keep their form, and may be wider inside."""
    match old, new:
        case _ if old == new:
            return
        case (types.IntegerColumn(was), types.IntegerColumn(bits)) | (
            types.FloatColumn(was),
            types.FloatColumn(bits),
        ):
            is_wider = bits > was
        case types.DecimalColumn(), types.DecimalColumn():
            is_wider = new.scale == old.scale and new.precision > old.precision
        case types.ArrayColumn(), types.ArrayColumn() if (
            old.element_nullable == new.element_nullable
        ):
            return check_widening(old.element, new.element, f"{name}.element")
        case types.MapColumn(), types.MapColumn() if old.value_nullable == new.value_nullable:
            check_widening(old.key, new.key, f"{name}.key")
            return check_widening(old.value, new.value, f"{name}.value")
        case types.StructColumn(), types.StructColumn() if _same_fields(old, new):
            for was_field, field in zip(old.fields, new.fields, strict=True):
                check_widening(was_field.type, field.type, f"{name}.{printable(field.name)}")
            return None
        case _:
            is_wider = False
    if not is_wider:
        raise ConfigError(
            f"column '{name}' can't change from {_shown(old)} to {_shown(new)}: {_REMEDY}"
        )


def _same_fields(old: types.StructColumn, new: types.StructColumn) -> bool:
    was = [(field.name, field.nullable) for field in old.fields]
    return was == [(field.name, field.nullable) for field in new.fields]


def _shown(column_type: types.ColumnType) -> str:
    text = types.ddl_of(column_type, exact=True)
    return printable(text if len(text) <= 200 else f"{text[:197]}...")
