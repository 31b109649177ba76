"""Why a record can't be decoded: it is read once more, value by value."""

from typing import NamedTuple

from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.protocol.avro.walk import DamagedValueError, TooManyValuesError, Walk

_MOST_STEPS = 20_000
"""The values that are read for a reason."""
_NOT_FOUND = "its bytes do not fit the schema"


class Damage(NamedTuple):
    """A record that can't be decoded."""

    row: int
    reason: str
    """The fault, with the field: "'rider.name' has 12 bytes, and 3 are left"."""


def reason_of(schema: AvroSchema, body: bytes | None) -> str:
    """Return why a record that `decode` refused is damaged; `body` None: only that it is."""
    if body is None:
        return _NOT_FOUND
    walk = Walk(schema, body, steps=_MOST_STEPS)
    try:
        walk.value(schema.root, "")
    except DamagedValueError as damaged:
        return str(damaged)
    except TooManyValuesError:
        return _NOT_FOUND
    if walk.left:
        return f"{walk.left} bytes are left behind its last value"
    return "its arrays and maps have more values or blocks than its bytes allow"
