"""The classes of messages, and of the structs in them."""

import dataclasses
from typing import Any

from storage_engine.protocol.apis.fields import WIRE
from storage_engine.protocol.apis.registry import APIS, module_of, spec_for
from storage_engine.protocol.apis.spec import AnyApi


def api_of(key: int) -> tuple[AnyApi, Any]:
    """An API and the class of its requests."""
    return spec_for(key), getattr(module_of(key), f"{APIS[key].name}Request")


def struct_of(message_class: Any, field_name: str) -> Any:
    """The class of the structs in a field, or the name of another type."""
    (field,) = (each for each in dataclasses.fields(message_class) if each.name == field_name)
    return field.metadata[WIRE].kind
