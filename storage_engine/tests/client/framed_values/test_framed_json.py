"""Keys and values of all languages, read by the schemas that they were written with."""

import json
from typing import Any

import pyarrow as pa
import pytest

from storage_engine.client.framed_values import framed_json
from storage_engine.client.framed_values.framed_json import FramedJson, ReadBounds
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import RegistryAddress, SchemaRegistryError
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.schemas.languages import Reference, Schema, SchemaType, parse
from storage_engine.schema_tools.protoc import compile_proto
from storage_engine.tests.client.registry.small_registry import small_registry

RIDE = json.dumps({"type": "record", "name": "Ride", "fields": [{"name": "a", "type": "string"}]})
PLACE = 'syntax = "proto3"; package p; message Place { string city = 1; }'
TRIP = """syntax = "proto3"; package p; import "place.proto";
message Other { int64 n = 1; }
message Trip { Place from_place = 1; message Stop { uint32 minute = 1; } repeated Stop stops = 2; }
"""


@pytest.fixture
def registry():
    with small_registry() as running:
        yield running


def reader(registry, patience_ms=500, **bounds):
    address = RegistryAddress(
        urls=(getattr(registry, "url", registry),),
        request_timeout_ms=patience_ms,
        patience_ms=patience_ms,
    )
    return FramedJson(SchemaRegistry(address, lag_s=0.0), ReadBounds(**bounds))


def framed(schema_id, body):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def read(values, framed_reader, **more):
    """The texts, the ids, and the reasons."""
    found = framed_reader.read(pa.array(values, pa.binary()), **more)
    return found.texts.to_pylist(), found.ids.tolist(), found.reasons


def described(registry, schema, **known):
    """The id of a Protobuf schema, of which the registry has the descriptor."""
    parsed: Any = parse(schema, known, compile_proto=compile_proto)
    references = [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in schema.references
    ]
    subject = f"s{len(registry.subjects)}"
    schema_id = registry.register(subject, schema.text, "PROTOBUF", references)
    registry.descriptors[schema_id] = parsed.serialized
    return schema_id, subject


def test_rows_of_all_languages_come_back_in_their_order_and_others_are_let_be(registry):
    avro = registry.register("a-value", RIDE)
    text = registry.register("j-value", "{}", "JSON")
    proto, _ = described(registry, Schema(SchemaType.PROTOBUF, PLACE))
    values = [
        framed(text, b'{"b":\n1.10}'),
        None,
        b"plain",
        framed(avro, b"\x02x"),
        framed(proto, b"\0\x0a\x04Rome"),
        framed(avro, b"\x02y"),
    ]
    texts, ids, reasons = read(values, reader(registry))
    assert texts == ['{"b": 1.10}', None, None, '{"a":"x"}', '{"city": "Rome"}', '{"a":"y"}']
    assert ids == [text, -1, -1, avro, proto, avro]
    assert reasons == {}


def test_a_message_is_of_the_type_that_its_indexes_name(registry):
    _, subject = described(registry, Schema(SchemaType.PROTOBUF, PLACE))
    reference = Reference("place.proto", subject, 1)
    known = {"place.proto": Schema(SchemaType.PROTOBUF, PLACE)}
    trip, _ = described(registry, Schema(SchemaType.PROTOBUF, TRIP, (reference,)), **known)
    bodies = {
        b"\0\x08\x05": '{"n": "5"}',
        b"\x02\x02\x0a\x06\x0a\x04Rome": '{"from_place": {"city": "Rome"}}',
        b"\x04\x02\0\x08\x07": '{"minute": 7}',
    }
    texts, _, reasons = read([framed(trip, each) for each in bodies], reader(registry))
    assert (texts, reasons) == (list(bodies.values()), {})
    wrong = {
        b"\x02\x08": "it is of message 4, and the schema has 2 there",
        b"\x04\x02\x02": "it is of message 1, and the schema has 1 there",
        b"\x01": "it says that its message has -1 indexes",
        b"\x04\x02": "it ends within the indexes of its message",
        b"": "it ends within the indexes of its message",
        b"\0\x08": "its bytes are no message of p.Other",
    }
    texts, _, reasons = read([framed(trip, each) for each in wrong], reader(registry))
    assert texts == [None] * len(wrong)
    assert list(reasons.values()) == list(wrong.values())


def test_what_is_no_json_says_so_and_its_neighbours_are_read(registry):
    schema_id = registry.register("j-value", "{}", "JSON")
    bodies = [b"{}", b"{", b"\xff", b"NaN", b"[" * 100_000, b"[1]"]
    texts, _, reasons = read([framed(schema_id, each) for each in bodies], reader(registry))
    assert texts == ["{}", None, None, None, None, "[1]"]
    assert sorted(reasons) == [1, 2, 3, 4]
    assert all(each.startswith("it is ") for each in reasons.values())


def test_an_id_that_nobody_gave_is_the_reason_of_its_rows(registry):
    schema_id = registry.register("a-value", RIDE)
    values = [framed(9, b"x"), framed(schema_id, b"\x02x"), framed(9, b"y")]
    texts, ids, reasons = read(values, reader(registry))
    assert (texts, ids) == ([None, '{"a":"x"}', None], [9, schema_id, 9])
    assert set(reasons) == {0, 2} and "knows no schema of id 9" in reasons[0]
    assert len([path for _, path in registry.asked if path.endswith("/9")]) == 1


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ('{"type": "nothing"}', "AVRO", "its schema can't be used"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}',
            "AVRO",
            "contains itself",
        ),
        (PLACE, "PROTOBUF", "it gives no descriptors of Protobuf"),
    ],
)
def test_a_schema_that_can_not_be_read_by_is_the_reason_and_is_asked_for_once(
    registry, text, kind, why
):
    schema_id = registry.register("s", text, kind)
    own = reader(registry)
    for _ in range(2):
        _, _, reasons = read([framed(schema_id, b"\0")], own)
        assert why in reasons[0] and "\n" not in reasons[0]
    assert len([path for _, path in registry.asked if "serialized" not in path]) == 1


def test_a_registry_that_is_away_is_not_asked_again_for_a_while(registry):
    own = reader(registry, away_s=60.0)
    schema_id = registry.register("a-value", RIDE)
    assert read([framed(schema_id, b"\x02x")], own)[0] == ['{"a":"x"}']
    other = registry.register("b-value", '"string"')
    registry.failures = [503] * 1_000
    texts, _, reasons = read([framed(schema_id, b"\x02y"), framed(other, b"\x02y")], own)
    assert texts == ['{"a":"y"}', None], "a schema that is known is read by"
    assert "gave no answer" in reasons[1]
    asked = len(registry.asked)
    assert read([framed(other + 1, b"")], own)[2] == {0: reasons[1]}
    assert len(registry.asked) == asked
    with pytest.raises(DeadlineExceededError):
        read([framed(other, b"\x02y")], reader(registry))


def test_a_refusal_is_a_reason_or_an_error_as_the_bounds_say():
    with small_registry(user_info="a:b") as registry:
        _, _, reasons = read([framed(1, b"")], reader(registry, away_s=60.0))
        assert "HTTP 401" in reasons[0]
        with pytest.raises(SchemaRegistryError, match="HTTP 401"):
            read([framed(1, b"")], reader(registry))


class Refuses:
    """A reader that is not to be asked."""

    def read(self, bodies):
        raise AssertionError(bodies)


def test_work_is_bounded(registry, monkeypatch):
    ids = [registry.register(f"s{number}", json.dumps(f"n{number}"), "JSON") for number in range(5)]
    own = reader(registry, new_ids=3, body_bytes=20, kept_schemas=2)
    values = [framed(each, b"1") for each in ids]
    texts, _, reasons = read(values, own)
    assert texts == ["1", "1", "1", None, None]
    assert reasons[4] == "this answer has more than 3 ids of schemas that are new here"
    assert len(own._kept) == 2
    assert read(values[3:], own)[0] == ["1", "1"], "the next answer goes on"
    own._kept[ids[4]] = Refuses(), 0
    long = framed(ids[4], b'"a text that is long"')
    assert read([long], own)[2] == {0: "it has 26 bytes; at most 20 are decoded here"}
    monkeypatch.setattr(framed_json, "_PIECE_ROWS", 2)
    over = iter([False, False, True, True])
    texts, _, reasons = read([values[0]] * 5, reader(registry), is_over=lambda: next(over))
    assert texts == ["1", "1", None, None, None]
    assert reasons[2] == "the time of this answer was over"
    asked = len(registry.asked)
    assert read(values, reader(registry), is_over=lambda: True)[0] == [None] * 5
    assert len(registry.asked) == asked


def test_a_name_that_is_long_makes_no_text_that_is_longer_than_allowed(registry):
    text = PLACE.replace("city", "c" * 10_000)
    proto, _ = described(registry, Schema(SchemaType.PROTOBUF, text))
    body = b"\0" + b"\x0a\x00" * 200
    _, _, reasons = read([framed(proto, body)], reader(registry, text_chars=1 << 20))
    assert reasons == {0: "its JSON could have more than 1 MiB"}
