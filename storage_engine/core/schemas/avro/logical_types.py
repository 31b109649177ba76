"""Which logical type a type's attributes give it.

Source: the specification of Apache Avro 1.12, logical types.
"""

from storage_engine.core.schemas.avro.schema import Decimal, Logical, LogicalType, Properties

_BY_TYPE: dict[tuple[str, str], Logical] = {
    ("int", "date"): Logical.DATE,
    ("int", "time-millis"): Logical.TIME_MILLIS,
    ("long", "time-micros"): Logical.TIME_MICROS,
    ("long", "timestamp-millis"): Logical.TIMESTAMP_MILLIS,
    ("long", "timestamp-micros"): Logical.TIMESTAMP_MICROS,
    ("long", "timestamp-nanos"): Logical.TIMESTAMP_NANOS,
    ("long", "local-timestamp-millis"): Logical.LOCAL_TIMESTAMP_MILLIS,
    ("long", "local-timestamp-micros"): Logical.LOCAL_TIMESTAMP_MICROS,
    ("long", "local-timestamp-nanos"): Logical.LOCAL_TIMESTAMP_NANOS,
    ("string", "uuid"): Logical.UUID,
}
_OF_FIXED: dict[tuple[int, str], Logical] = {
    (16, "uuid"): Logical.UUID,
    (12, "duration"): Logical.DURATION,
}


def logical_type(kind: str, properties: Properties, size: int | None = None) -> LogicalType | None:
    """Return the logical type of a primitive type, or of a fixed of `size` bytes; None where it has
    none, or one that does not fit."""
    name = properties.get("logicalType")
    if not isinstance(name, str):
        return None
    if name == "decimal":
        return _decimal(properties, size) if kind in ("bytes", "fixed") else None
    if size is not None:
        return _OF_FIXED.get((size, name))
    return _BY_TYPE.get((kind, name))


def _decimal(properties: Properties, size: int | None) -> Decimal | None:
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if precision < 1 or not 0 <= scale <= precision:
        return None
    if size is not None and precision > _most_digits(size):
        return None
    return Decimal(precision, scale)


def _most_digits(size: int) -> int:
    """Return how many decimal digits any number of `size` bytes, signed, can have."""
    return int((8 * size - 1) * 0.30102999566398120) if size else 0
