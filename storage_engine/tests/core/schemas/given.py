"""Schemas as a client sends them."""

import json

import pytest

from storage_engine.core.schemas.languages import (
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    Schema,
    SchemaType,
    parse,
)
from storage_engine.core.schemas.protobuf.parsed import ParsedProtobuf
from storage_engine.schema_tools.protoc import compile_proto


def avro_text(content, *names):
    return Schema(SchemaType.AVRO, json.dumps(content), references(*names))


def references(*names):
    return tuple(Reference(name, f"{name}-subject", 1) for name in names)


def avro(content, **more) -> ParsedSchema:
    return parse(avro_text(content), {}, **more)


def refusal(schema, resolved=None, **more):
    """Return the line with which the schema is refused."""
    with pytest.raises(InvalidSchemaError) as caught:
        parse(schema, resolved or {}, **more)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 500
    return line


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


def json_text(content, *names):
    return Schema(SchemaType.JSON, json.dumps(content), references(*names))


def json_schema(content, **more) -> ParsedSchema:
    return parse(json_text(content), {}, **more)


DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def protobuf_text(text, *names):
    return Schema(SchemaType.PROTOBUF, text, references(*names))


def protobuf(text, resolved=None) -> ParsedProtobuf:
    """`resolved` are texts by name, all of which the schema refers to."""
    others = {name: protobuf_text(each) for name, each in (resolved or {}).items()}
    found = parse(protobuf_text(text, *others), others, compile_proto=compile_proto)
    assert isinstance(found, ParsedProtobuf)
    return found
