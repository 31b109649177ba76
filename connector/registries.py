"""One client of each schema registry per process, with the schemas that it has fetched; and schemas
of Avro, parsed once per process. A forked child has connections of its own.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from connector.errors import ConnectorError
from connector.options.registry_options import RegistryOptions
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.schemas.avro.parsed import parse_avro_text
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.languages import Schema, SchemaType

if TYPE_CHECKING:
    from storage_engine.client.schema_registry import RegisteredSchema, SchemaRegistry
    from storage_engine.client.schema_registry_http import RegistryAddress
    from storage_engine.core.schemas.avro.schema import AvroSchema

MAX_REGISTRIES = 16
"""Clients per process; one more closes the one that was unused for longest."""

MAX_PARSED = 2_000
"""The most schemas that stay parsed."""

_registries: "dict[RegistryAddress, SchemaRegistry]" = {}
_owner_pid = os.getpid()


def registry_for(options: RegistryOptions) -> "SchemaRegistry":
    """The process's client for these options. It connects at its first request, not here."""
    from storage_engine.client.schema_registry import SchemaRegistry

    global _owner_pid
    if _owner_pid != os.getpid():
        # These sockets are the parent's, which still uses them.
        _registries.clear()
        _owner_pid = os.getpid()
    # What the file says now counts, so that a password which was changed there is used.
    address = options.address()
    registry = _registries.pop(address, None)
    if registry is None:
        if len(_registries) >= MAX_REGISTRIES:
            _registries.pop(next(iter(_registries))).close()
        registry = SchemaRegistry(address)
    _registries[address] = registry
    return registry


def close_registries() -> None:
    """Closes all connections that this process opened."""
    if _owner_pid == os.getpid():
        for registry in _registries.values():
            registry.close()
    _registries.clear()


@contextmanager
def registry_errors() -> Iterator[None]:
    """Errors of a registry, and of what it holds, become a ConnectorError."""
    from storage_engine.client.schema_registry_http import SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        raise ConnectorError("SCHEMA_REGISTRY", _one_line(error)) from None
    except DeadlineExceededError as error:
        raise ConnectorError("SCHEMA_REGISTRY_AWAY", _one_line(error)) from None
    except InvalidSchemaError as error:
        raise ConnectorError("BAD_SCHEMA", _one_line(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroText:
    """A schema of Avro and those that it refers to, as texts: what is pickled into tasks."""

    schema: Schema
    references: Mapping[str, Schema] = field(default_factory=dict)

    def parsed(self) -> "AvroSchema":
        """The schema's tree. InvalidSchemaError."""
        return _parsed(self.schema, tuple(sorted(self.references.items(), key=lambda one: one[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAvro:
    """A version of a subject, whose schema is Avro."""

    subject: str
    version: int
    schema_id: int
    text: AvroText


def avro_text(registry: "SchemaRegistry", schema: Schema) -> AvroText:
    """The schema with all that it refers to. InvalidSchemaError where it is not Avro."""
    if schema.schema_type is not SchemaType.AVRO:
        raise InvalidSchemaError(
            f"it is a schema of {schema.schema_type.value}, and value.format is avro"
        )
    references = registry.references_of(schema) if schema.references else {}
    return AvroText(schema=schema, references=references)


def named_avro(registry: "SchemaRegistry", found: "RegisteredSchema") -> NamedAvro:
    """The same version, with all that its schema refers to. ConnectorError."""
    with registry_errors():
        try:
            text = avro_text(registry, found.schema)
            text.parsed()
        except InvalidSchemaError as error:
            raise ConnectorError(
                "BAD_SCHEMA",
                f"version {found.version} of the subject '{found.subject}': {_one_line(error)}",
            ) from None
    return NamedAvro(
        subject=found.subject, version=found.version, schema_id=found.schema_id, text=text
    )


@lru_cache(maxsize=MAX_PARSED)
def _parsed(schema: Schema, references: tuple[tuple[str, Schema], ...]) -> "AvroSchema":
    return parse_avro_text(schema, dict(references), new=False).tree


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
