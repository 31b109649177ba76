"""Rows of a typed topic as records."""

import json

import pytest

from headrace_console.records.message_search import (
    ONE_ANSWER,
    MessageSearch,
    SearchRequest,
    collected,
)
from storage_engine.tests.client.support.typed_topics import (
    add_typed_topic,
    append_numbered,
    numbered_rows,
    typed_batch,
)


@pytest.fixture
def topic(fake):
    add_typed_topic(fake, "t", [1])
    append_numbered(fake, "t", [0, 1])
    return fake


def found(cluster, **wanted):
    request = SearchRequest(topic="t", start="earliest", limit=100, **wanted)
    return collected(MessageSearch(cluster, request, ONE_ANSWER))


@pytest.mark.usefixtures("topic")
def test_rows_of_some_columns_are_json_of_these_at_their_offsets(cluster):
    document = found(cluster, columns=("fare", "tag"), where="id >= 9 AND id < 11")
    assert [each["name"] for each in document["columns"]] == ["fare", "tag"]
    assert [row["offset"] for row in document["rows"]] == [9, 10]
    assert [json.loads(row["value"]["text"]) for row in document["rows"]] == [
        {"fare": 0.0, "tag": "x"},
        {"fare": 1.0, "tag": None},
    ]
    assert document["rows"][0]["row"] == [0.0, "x"]
    assert document["rows"][0]["key"] is None


def test_a_row_has_the_time_of_its_record(topic, cluster):
    batch = typed_batch(topic.topic_ids["t"], numbered_rows(2), now_ms=5)
    topic.partition("t").append(batch)
    (row,) = found(cluster, columns=("id",), where="id = 20")["rows"]
    assert (row["offset"], row["timestamp_ms"]) == (20, 5)
