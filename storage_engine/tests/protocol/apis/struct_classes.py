"""The classes of the structs in a message."""

import dataclasses
from typing import Any

from storage_engine.protocol.apis.fields import WIRE


def struct_of(message_class: Any, field_name: str) -> Any:
    """The class of the structs in a field, or the name of another type."""
    (field,) = (each for each in dataclasses.fields(message_class) if each.name == field_name)
    return field.metadata[WIRE].kind
