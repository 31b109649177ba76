"""What tools of Kafka 4 ask about a cluster: topics page by page (KIP-966)."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import describe_topic_partitions
from storage_engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)


def described(topic, names=(), most=2000, cursor=None):
    made = DescribeTopicPartitionsRequest
    request = made(
        topics=[made.TopicRequest(name=name) for name in names],
        response_partition_limit=most,
        cursor=cursor and made.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = topic.answer(topic.ask(1, describe_topic_partitions.API, 0, request))
    rows = [
        (each.name, each.error_code, [part.partition_index for part in each.partitions])
        for each in answer.topics
    ]
    following = answer.next_cursor
    return rows, following and (following.topic_name, following.partition_index)


@pytest.fixture
def topics(topic):
    for name, partitions in (("a", 3), ("b", 4)):
        assert topic.create_topic(name, partitions=partitions).error_code == 0
    topic.loop.run_until(lambda: "b" in topic[1].metadata)
    return topic


def test_topics_are_described_page_by_page_each_partition_once(topics):
    assert described(topics) == ([("a", 0, [0, 1, 2]), ("b", 0, [0, 1, 2, 3]), ("t", 0, [0])], None)
    for most in range(1, 9):
        seen, cursor = [], None
        while True:
            rows, cursor = described(topics, most=most, cursor=cursor)
            page = [(name, number) for name, _, numbers in rows for number in numbers]
            assert len(page) <= most
            seen += page
            if cursor is None:
                break
        assert seen == [*(("a", n) for n in range(3)), *(("b", n) for n in range(4)), ("t", 0)]


def test_a_page_begins_at_its_cursor_also_where_that_topic_is_gone(topics):
    assert described(topics, cursor=("b", 3)) == ([("b", 0, [3]), ("t", 0, [0])], None)
    assert described(topics, ["t", "a"], cursor=("aa", 2)) == ([("t", 0, [0])], None)
    invalid = int(ErrorCode.INVALID_REQUEST)
    assert described(topics, ["t"], cursor=("a", -1)) == ([("t", invalid, [])], None)


def test_topics_that_are_not_there_are_told(topic):
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    bad = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    rows, _ = described(topic, ["none", "t", "a/b"])
    assert rows == [("a/b", bad, []), ("none", unknown, []), ("t", 0, [0])]
