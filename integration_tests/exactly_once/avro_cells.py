"""The same queries between topics of Avro, with a schema registry. Ids come as records with the
field `id`; rows are written as records with the fields `value` and `check`, as of `typed_cells`.
"""

import io
import json
import zlib
from contextlib import AbstractContextManager

import fastavro

from storage_engine.tests.client.registry.small_registry import SmallRegistry, small_registry

SOURCE = json.dumps({"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]})
TARGET = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "unused", "type": ["null", "int"], "default": None},
            {"name": "value", "type": "string"},
            {"name": "check", "type": ["null", "long"]},
        ],
    }
)
SOURCE_ID = 1
"""The first schema that the registry gives an id."""


def registry_of_sources() -> AbstractContextManager[SmallRegistry]:
    """A registry for all cases of a bench."""
    return small_registry(first_id=SOURCE_ID)


def register(registry: SmallRegistry, source: str) -> None:
    """Before the source is read."""
    assert registry.register(f"{source}-value", SOURCE) == SOURCE_ID


def options(url: str) -> dict[str, str]:
    """Of the source, and of the sink but for its schema."""
    return {"value.format": "avro", "schema.registry.url": url}


def as_record(value: bytes) -> bytes:
    """The value of a record that becomes the row of an id."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, json.loads(SOURCE), {"id": int(value)})
    return b"\0" + SOURCE_ID.to_bytes(4, "big") + body.getvalue()


def value_of(record: bytes) -> bytes:
    """The value of a row. AssertionError when its fields are of several rows."""
    assert record[0] == 0
    body = io.BytesIO(record[5:])
    row = fastavro.schemaless_reader(body, json.loads(TARGET), None)
    assert isinstance(row, dict) and body.read() == b""
    value: bytes = str(row["value"]).encode()
    assert row["check"] == zlib.crc32(value.partition(b"/")[2]), f"fields are mixed: {row}"
    return value
