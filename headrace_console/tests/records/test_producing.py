"""One record that a user typed."""

import pytest

from headrace_console.given import Body
from headrace_console.problem import ConsoleError
from headrace_console.records.producing import MOST_BYTES, produce_one
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.support.typed_topics import add_typed_topic


@pytest.fixture
def topic(fake):
    fake.add_topic("t", [1, 2, 3])
    return fake


def test_a_record_goes_where_it_was_sent_as_it_was_typed(topic, cluster):
    body = {
        "partition": 2,
        "key": {"base64": "/w=="},
        "value": {"text": "ä"},
        "headers": [{"key": "h", "value": None}],
    }
    document = produce_one(cluster, "t", Body(body))
    assert (document["partition"], document["offset"]) == (2, 0)
    (batch,) = topic.partition("t", 2).batches
    records = decode_batches(batch, include_headers=True)
    assert (records.keys.to_pylist(), records.values.to_pylist()) == ([b"\xff"], ["ä".encode()])
    assert records.timestamps_ms.to_pylist() == [document["timestamp_ms"]]
    assert records.headers.to_pylist() == [[{"key": "h", "value": None}]]


def test_a_key_goes_where_other_clients_send_it(topic, cluster):
    # Of Kafka's own test for its partitioner: murmur2 of "foobar" is -790332482.
    document = produce_one(cluster, "t", Body({"key": {"text": "foobar"}}))
    assert document["partition"] == (-790332482 & 0x7FFFFFFF) % 3
    assert topic.partition("t", document["partition"]).end_offset == 1


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"partition": 3}, "'partition' must be below 3"),
        ({"key": {}}, "'key' must be null, or an object with either 'text' or 'base64'"),
        ({"key": {"text": "a", "base64": "YQ=="}}, "'key' must be null, or an object with either"),
        ({"value": {"base64": "%"}}, r"'value\.base64' must be base64"),
        ({"headers": [{"value": None}]}, r"'headers\[0\]\.key' is missing"),
        ({"value": {"text": "ä" * (MOST_BYTES // 2 + 1)}}, f"sends {MOST_BYTES} at most"),
    ],
)
def test_what_can_not_be_sent_is_named_and_nothing_is_sent(topic, cluster, body, complaint):
    with pytest.raises(ConsoleError, match=complaint):
        produce_one(cluster, "t", Body(body))
    assert topic.count("Produce") == 0


def test_a_row_whose_key_can_not_be_read_is_refused(fake, cluster):
    add_typed_topic(fake, "t", [1, 2])
    from storage_engine.core.typed.ddl import parse_ddl
    from storage_engine.core.typed.topic_schema import new_schema

    fake.schemas["t"] = new_schema(parse_ddl("id BIGINT NOT NULL, tag STRING"), ["id"])
    with pytest.raises(ConsoleError, match="'value' is no row of topic"):
        produce_one(cluster, "t", Body({"value": {"text": '{"tag": "x"}'}}))
    places = {
        produce_one(cluster, "t", Body({"value": {"text": text}}))["partition"]
        for text in ('{"id": 5}', '{"id": 5, "tag": "x"}')
    }
    assert len(places) == 1, "equal keys go to one partition"
