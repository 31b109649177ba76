"""The limit of a topic's record batches, which may be known, raised, or unknown."""

import pytest

from connector.errors import RowError
from connector.sink import topic_limits
from connector.sink.topic_limits import _ask_limit as ask_limit
from connector.tests.sink.written_records import LIMIT, rows_of, write
from storage_engine.client.admin import topics
from storage_engine.core.errors import ErrorCode, KafkaError


def test_batches_keep_below_the_limit_of_the_topic(cluster):
    write([rows_of(2_000, "x" * 100)])
    assert len(cluster.appended) > 20
    assert all(len(batch) <= LIMIT for _, batch in cluster.appended)


def test_a_record_above_the_limit_of_the_topic_is_one_line(cluster):
    with pytest.raises(RowError) as raised:
        write([rows_of(1, "x" * 20_000)])
    assert "a record takes 20072 bytes, and the topic's max.message.bytes is 10000" in str(
        raised.value
    )
    assert cluster.appended == []


def test_a_limit_that_was_raised_meanwhile_counts_before_a_record_is_refused(cluster):
    write([rows_of(2_000, "x" * 100)])
    cluster.limit, cluster.appended = 30_000, []
    write([rows_of(1, "x" * 20_000)])
    assert len(cluster.appended) == 1


def test_where_brokers_do_not_tell_the_limit_they_alone_refuse_a_record(cluster, monkeypatch):
    """As to a user who may write to the topic, and not describe its settings."""

    def refused(cluster, topic):
        raise KafkaError("settings of topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(topic_limits, "_ask_limit", ask_limit)
    monkeypatch.setattr(topics, "describe_topic_configs", refused)
    write([rows_of(1, "x" * 2_000_000)])
    assert len(cluster.appended) == 1
    write([rows_of(50_000, "x" * 100)])
    assert all(len(batch) <= 1_048_588 for _, batch in cluster.appended[1:])
