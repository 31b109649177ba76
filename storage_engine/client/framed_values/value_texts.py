"""Bodies of one schema as JSON text: Avro by columns, JSON and Protobuf one by one."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa

from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.protocol.avro.arrays import texts
from storage_engine.protocol.avro_json import AvroJson, JsonPiece
from storage_engine.protocol.records.control_record import varint_at

if TYPE_CHECKING:
    from storage_engine.core.schemas.protobuf.messages import MessageTexts

_MOST_INDEXES = 64
_HOW_TO_GET_PROTOBUF = (
    "messages of Protobuf need the package protobuf: pip install 'headrace[registry]'"
)

OneText = Callable[[bytes], str]
"""Raises _BodyError."""


class ValueTexts(Protocol):
    """Reads bodies that were written with one schema."""

    def read(self, bodies: pa.BinaryArray) -> Iterator[JsonPiece]:
        """Yield the texts of all rows, none of which is null, in their order."""
        ...


class _BodyError(Exception):
    """Why a body can't be read."""


def value_texts(
    registry: SchemaRegistry, schema_id: int, schema: Schema, most_chars: int
) -> ValueTexts:
    """Return the reader of the schema's bodies. InvalidSchemaError where there can be none; errors
    of the registry, which is asked for what the schema refers to."""
    match schema.schema_type:
        case SchemaType.AVRO:
            from storage_engine.core.schemas.avro.parsed import parse_avro_text

            known = registry.references_of(schema) if schema.references else {}
            return AvroJson(parse_avro_text(schema, known, new=False).tree, most_chars)
        case SchemaType.JSON:
            return _OneByOne(_json_text)
        case SchemaType.PROTOBUF:
            return _OneByOne(_protobuf(registry, schema_id, most_chars))


class _OneByOne:
    def __init__(self, text_of: OneText) -> None:
        self._text_of = text_of

    def read(self, bodies: pa.BinaryArray) -> Iterator[JsonPiece]:
        found: list[str] = []
        reasons: dict[int, str] = {}
        for row, body in enumerate(bodies.to_pylist()):
            try:
                found.append(self._text_of(body))
            except _BodyError as error:
                found.append("")
                reasons[row] = str(error)
        yield JsonPiece(0, texts(found), reasons)


def _json_text(body: bytes) -> str:
    try:
        text = body.decode()
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except UnicodeDecodeError:
        raise _BodyError("it is no JSON: it is not UTF-8") from None
    except RecursionError:
        raise _BodyError("it is JSON that is nested too deep") from None
    except ValueError as error:
        raise _BodyError(f"it is no JSON: {' '.join(str(error).split())[:200]}") from None
    # White space between its tokens.
    return text.replace("\n", " ").replace("\r", " ")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of JSON")


def _protobuf(registry: SchemaRegistry, schema_id: int, most_chars: int) -> OneText:
    try:
        from storage_engine.core.schemas.protobuf.messages import DamagedMessageError
    except ModuleNotFoundError:
        raise InvalidSchemaError(_HOW_TO_GET_PROTOBUF) from None
    messages = _messages(registry, schema_id)

    def text(body: bytes) -> str:
        try:
            place, start = _message_indexes(body)
            return messages.text(place, body[start:], most_chars)
        except DamagedMessageError as error:
            raise _BodyError(str(error)) from None

    return text


def _messages(registry: SchemaRegistry, schema_id: int) -> "MessageTexts":
    from storage_engine.core.schemas.protobuf.messages import MessageTexts
    from storage_engine.core.schemas.protobuf.parsed import parse_protobuf_text

    schema = registry.descriptor(schema_id)
    known = registry.references_of(schema, serialized=True) if schema.references else {}
    return MessageTexts(parse_protobuf_text(schema, known, _no_descriptor))


def _no_descriptor(text: str, others: Mapping[str, str]) -> NoReturn:
    raise InvalidSchemaError(
        "the registry answers format=serialized with a text: it gives no descriptors of Protobuf"
    )


def _message_indexes(body: bytes) -> tuple[list[int], int]:
    """The place of the message's type in the schema, and where the message begins:

    | field | bytes | |
    |---|---|---|
    | count | zigzag varint | 0: the place is that of the first message |
    | numbers | a zigzag varint each | of a message in the file, then of one within it |
    """
    view = memoryview(body)
    try:
        count, at = varint_at(view, 0)
        if not 0 <= count <= _MOST_INDEXES:
            raise _BodyError(f"it says that its message has {count} indexes")
        place = []
        for _ in range(count):
            number, at = varint_at(view, at)
            place.append(number)
    except ValueError:
        raise _BodyError("it ends within the indexes of its message") from None
    return place or [0], at
