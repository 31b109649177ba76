"""Messages that are read through a schema registry."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace_console.cluster.registry_upstream import RegistryUpstream
from headrace_console.given import Params
from headrace_console.records import schema_values
from headrace_console.records.found_messages import messages
from headrace_console.records.message_search import (
    ONE_ANSWER,
    MessageSearch,
    SearchRequest,
    collected,
)
from headrace_console.records.record_search import RecordSearch
from headrace_console.records.schema_values import SchemaValues
from headrace_console.records.shown_batches import one_message
from headrace_console.tests.records.appended import append
from storage_engine.client.schema_registry_http import RegistryAddress
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.client.registry.small_registry import small_registry

RIDE = {
    "type": "record",
    "name": "Ride",
    "fields": [{"name": "city", "type": "string"}, {"name": "fare", "type": "long"}],
}


@pytest.fixture
def registry():
    with small_registry() as running:
        running.register("t-value", json.dumps(RIDE))
        yield running


@pytest.fixture
def schemas(registry):
    upstream = RegistryUpstream(RegistryAddress(urls=(registry.url,)), None)
    yield SchemaValues(upstream, "t")
    upstream.close()


def ride(city, fare, schema_id=1):
    text = city.encode()
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * len(text)]) + text + bytes([2 * fare])


def found(cluster, schemas, **given) -> Any:
    return searched(cluster, schemas, **given)["rows"]


def searched(cluster, schemas, **given) -> Any:
    request = SearchRequest(
        topic="t",
        start="earliest",
        search=RecordSearch.parse(Params(list(given.items())), since_ms=None),
    )
    return collected(MessageSearch(cluster, request, ONE_ANSWER, schemas=schemas))


def test_values_are_shown_as_their_json_with_the_version_that_wrote_them(fake, cluster, schemas):
    fake.add_topic("t", [1])
    append(fake, ride("Rome", 7), b"plain", ride("Oslo", 9)[:-1], ride("Bonn", 3, schema_id=5))
    rome, plain, cut, unknown = (row["value"] for row in found(cluster, schemas))
    assert (rome["kind"], rome["text"]) == ("json", '{"city":"Rome","fare":7}')
    assert rome["bytes"] == len(ride("Rome", 7))
    own = {"subject": "t-value", "version": 1, "others": 0}
    assert rome["schema"] == {"id": 1, **own, "why": None}
    assert "schema" not in plain and plain["text"] == "plain"
    assert cut["schema"]["why"] == "'fare' is cut off"
    assert (cut["kind"], cut["text"]) == ("binary", ride("Oslo", 9)[:-1].hex(" "))
    assert (cut["schema"]["id"], cut["schema"]["version"]) == (1, 1)
    assert "knows no schema of id 5" in unknown["schema"]["why"]
    assert unknown["schema"]["subject"] is None


def test_a_message_on_its_own_has_its_bytes_too(fake, cluster, schemas):
    fake.add_topic("t", [1])
    append(fake, ride("Rome", 7))
    message: Any = one_message(cluster, TopicPartition("t", 0), 0, None, schemas)
    value = message["value"]
    assert json.loads(value["pretty"]) == {"city": "Rome", "fare": 7}
    assert value["raw"]["text"].startswith("00 00 00 00 01 08 52")


def test_the_columns_of_a_row_come_from_what_was_read(schemas):
    (batch,) = encode_batches(pa.array([ride("Rome", 7)], pa.binary()))
    records = decode_batches(bytes(batch.data), include_headers=True)
    tp = TopicPartition("t", 0)
    (found,) = messages(tp, records, [0], columns=["fare", "city"], schemas=schemas)
    assert found.document["row"] == [7, "Rome"]


@pytest.mark.parametrize(
    "given",
    [
        {"path": "$.fare", "equals": "42"},
        {"value": '"fare":42'},
        {"value": "^.*Bonn.*42}$", "regex": "1"},
    ],
)
def test_a_search_finds_what_the_json_says(fake, cluster, schemas, monkeypatch, given):
    monkeypatch.setattr(schema_values, "PIECE_BYTES", 30)
    fake.add_topic("t", [1])
    append(fake, *(ride("Bonn", number) for number in range(60)), b'{"fare": 41}')
    (row,) = found(cluster, schemas, **given)
    assert (row["offset"], row["value"]["text"]) == (42, '{"city":"Bonn","fare":42}')
    assert found(cluster, None, **given) == []


def test_a_search_still_finds_bytes_and_json_without_a_schema(fake, cluster, schemas):
    fake.add_topic("t", [1])
    append(fake, ride("Rome", 7), b'{"fare": 7}')
    assert len(found(cluster, schemas, value="Rome")) == 1
    assert [row["offset"] for row in found(cluster, schemas, path="$.fare", equals="7")] == [0, 1]


def test_a_search_says_that_some_values_could_not_be_read(fake, cluster, schemas):
    fake.add_topic("t", [1])
    append(fake, ride("Rome", 7), ride("Oslo", 9)[:-1], ride("Bonn", 7, schema_id=5))
    document = searched(cluster, schemas, path="$.fare", equals="7")
    assert [row["offset"] for row in document["rows"]] == [0]
    (trouble,) = document["troubles"]
    assert trouble.startswith("some keys or values can't be read by their schemas, and were")
    assert trouble.endswith("'fare' is cut off")


def over_after(times):
    """True from the next call on, after so many."""
    left = iter(range(times))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("start", ["earliest", "newest"])
def test_what_was_not_compared_in_time_is_where_the_next_search_begins(
    fake, cluster, schemas, start
):
    fake.add_topic("t", [1])
    for number in range(6):
        append(fake, ride("Rome", number % 3))
    search = RecordSearch.parse(Params([("path", "$.fare"), ("equals", "1")]), since_ms=None)
    for times in range(30):
        found_at: list[int] = []
        place, calls = start, times
        while place is not None:
            request = SearchRequest(topic="t", start=place, search=search)
            own = MessageSearch(
                cluster, request, ONE_ANSWER, is_left=over_after(calls), schemas=schemas
            )
            answer: Any = collected(own)
            found_at += [row["offset"] for row in answer["rows"]]
            place, calls = answer["next"] and answer["next"]["from"], 10_000
        assert sorted(found_at) == [1, 4], times


def test_a_registry_that_is_away_hides_no_message(fake, cluster, registry, schemas):
    registry.failures = [503] * 1_000
    fake.add_topic("t", [1])
    append(fake, ride("Rome", 7), ride("Oslo", 9, schema_id=2), b"plain")
    rome, oslo, plain = (row["value"] for row in found(cluster, schemas))
    assert "gave no answer" in rome["schema"]["why"]
    assert oslo["schema"]["why"] == rome["schema"]["why"], "it is asked once"
    assert (rome["text"], plain["text"]) == (ride("Rome", 7).hex(" "), "plain")


def test_records_are_cut_by_the_bytes_of_their_values(monkeypatch):
    monkeypatch.setattr(schema_values, "PIECE_BYTES", 10)
    values = [b"x" * 4, b"y" * 6, None, b"z" * 30, b"a", b"b"]
    (batch,) = encode_batches(pa.array(values, pa.binary()))
    records = decode_batches(bytes(batch.data), include_headers=True)
    cut = [each.values.to_pylist() for each in schema_values.pieces(records)]
    assert cut == [values[:3], values[3:4], values[4:]]
