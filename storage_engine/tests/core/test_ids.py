"""Names of topics and partitions, as other programs write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import (
    GROUP_OFFSETS_TOPIC,
    TopicPartition,
    check_not_internal,
    numbers_by_topic,
    topic_id_from_text,
    topic_id_to_text,
    topic_name_problem,
)


def test_a_partition_is_read_as_it_is_written():
    tp = TopicPartition("a-1-b", 12)
    assert TopicPartition.parse(str(tp)) == tp


@pytest.mark.parametrize("name", ["t", "t-", "-1", "t-x", "t--", "t-1.0", "t-007", "t-٣", ""])
def test_what_is_no_name_of_a_partition_is_refused(name):
    with pytest.raises(ValueError, match=f"'{name}' is not of the form"):
        TopicPartition.parse(name)


def test_partitions_are_gathered_by_topic_in_their_order():
    partitions = [TopicPartition(*each) for each in (("b", 2), ("a", 0), ("b", 1))]
    assert numbers_by_topic(partitions) == {"b": [2, 1], "a": [0]}


@pytest.mark.parametrize("topic", ["a", "...", "A.b_c-9", "x" * 249])
def test_names_of_kafka_are_names_of_topics(topic):
    assert topic_name_problem(topic) is None


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("", "is empty"),
        (".", "can't be '.'"),
        ("..", "can't be '..'"),
        ("x" * 250, "has 250 characters, at most 249"),
        *((name, "has characters other than") for name in ("a b", "a/b", "ä", "a\n", "²")),
    ],
)
def test_what_can_not_be_a_topic_is_told_why(topic, problem):
    assert problem in str(topic_name_problem(topic))


@given(st.uuids())
def test_a_topic_id_is_read_as_it_is_shown(topic_id):
    text = topic_id_to_text(topic_id)
    assert len(text) == 22
    assert topic_id_from_text(text) == topic_id


@pytest.mark.parametrize(
    "text", ["", "short", "A" * 21, "A" * 23, "A" * 44, "ä" * 22, "A" * 22 + "!!!!"]
)
def test_what_is_no_topic_id_is_refused(text):
    with pytest.raises(ValueError, match="is not a topic id"):
        topic_id_from_text(text)


def test_clients_leave_the_topics_of_the_brokers_alone():
    check_not_internal("mine", "delete")
    with pytest.raises(KafkaError, match="clients can't delete it") as raised:
        check_not_internal(GROUP_OFFSETS_TOPIC, "delete")
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
