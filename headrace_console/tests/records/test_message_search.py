"""A search of a topic's records, within bounds."""

import dataclasses

import pytest

from headrace_console.records.message_search import (
    ONE_ANSWER,
    MessageSearch,
    SearchRequest,
    collected,
)
from headrace_console.records.record_search import RecordSearch
from headrace_console.tests.records.appended import append
from storage_engine.core.errors import KafkaError


@pytest.fixture
def topic(fake):
    """Ten batches of a record in one partition, and three in another."""
    fake.add_topic("t", [1, 2])
    for number in range(10):
        append(fake, b"a%d" % number)
    for number in range(3):
        append(fake, b"b%d" % number, partition=1)
    return fake


def found(cluster, limits=ONE_ANSWER, is_left=lambda: False, **wanted):
    search = MessageSearch(cluster, SearchRequest(topic="t", **wanted), limits, is_left=is_left)
    return collected(search)


def values(document):
    return [row["value"]["text"] for row in document["rows"]]


@pytest.mark.parametrize(("start", "first"), [("newest", "a9"), ("earliest", "a0")])
@pytest.mark.usefixtures("topic")
def test_searches_one_after_the_other_show_each_record_once(cluster, start, first):
    shown = []
    while start is not None:
        document = found(cluster, start=start, limit=3)
        assert len(document["rows"]) <= 3
        shown += values(document)
        start = document["next"] and document["next"]["from"]
    assert (shown[0], len(shown), len(set(shown))) == (first, 13, 13)
    assert document["stopped"] is document["why"] is None


@pytest.mark.usefixtures("topic")
def test_a_search_looks_on_until_it_has_found_as_many_as_were_asked_for(cluster):
    document = found(cluster, search=RecordSearch(value="0"), limit=2)
    assert sorted(values(document)) == ["a0", "b0"]
    assert document["scanned"]["records"] == 13 and document["scanned"]["partitions"] == 2
    assert document["stopped"] == "limit"


@pytest.mark.parametrize(
    ("bound", "stopped"),
    [({"records": 1}, "records"), ({"size_bytes": 1}, "bytes"), ({"duration_s": 0.0}, "time")],
)
@pytest.mark.usefixtures("topic")
def test_the_first_bound_that_is_reached_ends_the_search_and_says_where_to_go_on(
    cluster, bound, stopped
):
    limits = dataclasses.replace(ONE_ANSWER, **bound)
    document = found(cluster, limits, start="earliest", search=RecordSearch(value="none"))
    assert document["stopped"] == stopped
    assert document["next"]["from"].startswith("after:")
    assert "continue it, or narrow it" in document["why"]


@pytest.mark.usefixtures("topic")
def test_a_search_whose_page_is_gone_ends(cluster):
    assert found(cluster, is_left=lambda: True)["rows"] == []


def test_a_damaged_batch_is_told_and_hides_no_other(topic, cluster):
    batch = bytearray(topic.partition("t").batches[4])
    batch[-1] ^= 1
    topic.partition("t").batches[4] = bytes(batch)
    document = found(cluster, limit=50)
    assert len(document["rows"]) == 12 and "a4" not in values(document)
    (trouble,) = document["troubles"]
    assert "the batch of t-0 with offsets 4 to 4 can't be shown" in trouble


def test_a_partition_whose_leader_is_gone_is_told_and_the_others_are_shown(topic, cluster):
    topic.move_leader("t", 1, -1)
    document = found(cluster, limit=50)
    assert len(document["rows"]) == 10
    assert document["troubles"] == ["t-1 has no leader now"]
    assert [each["what"] for each in document["unanswered"]] == ["t-1"]


def test_a_topic_that_is_not_there_is_an_error_before_the_first_event(cluster):
    with pytest.raises(KafkaError):
        found(cluster)
