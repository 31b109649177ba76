"""Records as lines, read through a schema registry."""

import json

import pyarrow as pa
import pytest

from storage_engine.client.framed_values.framed_json import FramedJson, ReadBounds
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import RegistryAddress
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.client.registry.small_registry import small_registry
from storage_engine.tools.schema_lines import SchemaLines

TP = TopicPartition("t", 1)
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ITEM = json.dumps({"type": "record", "name": "I", "fields": [{"name": "price", "type": PRICE}]})


@pytest.fixture
def registry():
    with small_registry() as running:
        yield running


def lines(registry):
    address = RegistryAddress(urls=(registry.url,), patience_ms=500)
    return SchemaLines(FramedJson(SchemaRegistry(address, lag_s=0.0), ReadBounds()))


def records(keys, values):
    (batch,) = encode_batches(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), now_ms=5)
    return decode_batches(bytes(batch.data), include_headers=True)


def framed(schema_id, body):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def test_what_is_framed_is_a_text_and_the_rest_is_as_it_was(registry):
    item, key = registry.register("t-value", ITEM), registry.register("t-key", '"string"')
    given = records([framed(key, b"\x02k"), b"plain"], [framed(item, b"\x02\x6e"), None])
    found, problem = lines(registry).plain(TP, given)
    assert problem == ""
    assert found.keys.to_pylist() == [b'"k"', b"plain"]
    assert found.values.to_pylist() == [b'{"price":1.10}', None]


def test_a_document_has_the_json_with_all_its_digits_and_the_id(registry):
    item = registry.register("t-value", ITEM)
    given = records([b"\xff", None], [framed(item, b"\x02\x6e"), framed(9, b"x")])
    first, second = lines(registry).json(TP, given).decode().splitlines()
    assert '"value":{"price":1.10},"value_schema_id":1,' in first
    assert json.loads(first) == {
        **{"topic": "t", "partition": 1, "offset": 0, "timestamp": 5, "headers": []},
        **{"key": None, "key_base64": "/w=="},
        **{"value": {"price": 1.1}, "value_schema_id": item},
    }
    told = json.loads(second)
    assert "knows no schema of id 9" in told.pop("value_error")
    assert told == {
        **{"topic": "t", "partition": 1, "offset": 1, "timestamp": 5, "headers": [], "key": None},
        **{"value": "\0\0\0\0\tx", "value_schema_id": 9},
    }


def test_a_record_that_can_not_be_read_is_named_and_those_before_it_are_lines(registry):
    item, key = registry.register("t-value", ITEM), registry.register("t-key", '"string"')
    good = framed(item, b"\x02\x6e")
    given = records([None, None, framed(key, b"\x09")], [good, framed(item, b"\x04\x6e"), good])
    found, problem = lines(registry).plain(TP, given)
    assert found.values.to_pylist() == [b'{"price":1.10}']
    assert problem.startswith("the value of t-1 at offset 1, with schema id 1, can't be read: ")
    assert "'price'" in problem and "--json prints" in problem and "\n" not in problem
