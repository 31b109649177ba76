"""Why a record can't be decoded: it is read once more, value by value."""

from typing import NamedTuple

from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.protocol.avro.one_value import MOST_STEPS
from storage_engine.protocol.avro.walk import DamagedValueError, TooManyValuesError, Walk
from storage_engine.protocol.records.varints import Bytes

_MOST_STEPS = 20_000
"""The values of a record that are read for a reason."""
_MOST_STEPS_IN_ALL = 100_000
"""The values of all records that are decoded at once."""
_NOT_FOUND = "its bytes do not fit the schema"
_STEPS_OF_A_RECORD = 1_000
"""A record counts as so many values besides, since its reason is a text."""
TOO_LONG = (
    f"its arrays and maps, those within them counted again, have more than {MOST_STEPS:,} values: "
    "write smaller records, or read it as bytes"
)


class Damage(NamedTuple):
    """A record that can't be decoded."""

    row: int
    reason: str
    """The fault, with the field: "'rider.name' has 12 bytes, and 3 are left"."""


class Reasons:
    """Finds why records that `decode` refused are damaged."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._left = _MOST_STEPS_IN_ALL

    def of(self, body: Bytes) -> str:
        """Return the reason; after many records only that there is one."""
        if self._left <= 0:
            return _NOT_FOUND
        walk = Walk(self._schema, body.tobytes(), steps=min(_MOST_STEPS, self._left))
        try:
            walk.value(self._schema.root, "")
        except DamagedValueError as damaged:
            return str(damaged)
        except TooManyValuesError:
            return _NOT_FOUND
        finally:
            self._left -= walk.steps + _STEPS_OF_A_RECORD
        if walk.left:
            return f"{walk.left} bytes are left behind its last value"
        return "its arrays and maps have more values than its bytes allow"
