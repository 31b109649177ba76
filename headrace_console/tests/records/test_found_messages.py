"""Records as messages of the API."""

import pyarrow as pa

from headrace_console.records.found_messages import MOST_HEADERS, messages, schema_columns
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

TP = TopicPartition("t", 3)


def found(values, *, headers=(), columns=None, places=None, **more):
    own = [[{"key": name, "value": value} for name, value in headers]] * len(values)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()), None, pa.array(own, HEADERS_TYPE), now_ms=5
    )
    records = decode_batches(bytes(batch.data), include_headers=True)
    chosen = range(len(values)) if places is None else places
    return messages(TP, records, list(chosen), columns=columns, **more)


def test_only_the_messages_at_the_places_are_made_with_their_position():
    first, second = found([b"a", b"b", b"c"], places=[0, 2])
    assert (first.partition, first.offset, first.timestamp_ms) == (3, 0, 5)
    assert second.document["value"]["text"] == "c"
    assert (second.document["offset"], second.document["timestamp_type"]) == (2, "create")
    assert second.document["key"] is None and second.document["dead_letter"] is None


def test_more_headers_than_are_shown_are_counted():
    (message,) = found([b"v"], headers=[("h", b"%d" % n) for n in range(MOST_HEADERS + 3)])
    assert len(message.document["headers"]) == MOST_HEADERS
    assert message.document["headers_cut"] == 3


def test_a_dead_letter_tells_where_it_came_from_and_numbers_that_are_none_are_not_known():
    origin = [(TOPIC, b"orders"), (PARTITION, b"2"), (OFFSET, b"-1"), (REASON, b"bad \xff")]
    (message,) = found([b"v"], headers=[*origin, (TIMESTAMP, b"9" * 30)])
    assert message.document["dead_letter"] == {
        "topic": "orders",
        "partition": 2,
        "offset": None,
        "timestamp_ms": None,
        "reason": "bad \ufffd",
    }


def test_the_cells_of_a_row_are_those_of_the_columns_and_a_cut_one_is_marked():
    row = b'{"b": "%s", "a": 9007199254740993}' % (b"x" * 300)
    values = [row, None, b"[1]", b"[" * 100_000]
    wide, *others = found(values, columns=["a", "b", "c"], most_chars=10)
    assert wide.document["row"] == ["9007199254740993", "x" * 256, None]
    assert wide.document["row_cut"] == [1]
    assert [each.document["row"] for each in others] == [None] * 3


def test_the_columns_of_a_table_are_named_with_what_a_page_needs():
    schema = new_schema(parse_ddl("id BIGINT NOT NULL, tag STRING"), ["id"])
    assert schema_columns(schema) == [
        {"name": "id", "type": "BIGINT", "nullable": False, "key": True},
        {"name": "tag", "type": "STRING", "nullable": True, "key": False},
    ]
    assert [each["name"] for each in schema_columns(schema, ["tag"])] == ["tag"]
