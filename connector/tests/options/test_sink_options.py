"""Options of the sink, and the one-line error of each that is wrong."""

import pytest

from connector.options.sink_options import TopicCreation
from connector.tests.options.parsed import assert_refused, sink


def test_a_sink_setting_works_with_and_without_the_prefix():
    assert sink(kafka__acks="1", deliveryGuarantee="at-least-once").acks == 1
    assert sink(acks="all").acks == -1
    assert sink(kafka__compression__type="ZSTD").compression == "zstd"
    assert sink(batch__size="1000").batch_bytes == 1000


def test_a_topic_is_made_of_the_rows_columns_only_when_asked_for():
    assert sink(topic="t").creation is None
    made = sink(topic="t", createTopic="true", topic__key="id, at", topic__partitions="3")
    assert made.creation == TopicCreation(key=("id", "at"), partitions=3, replication_factor=None)


def test_what_spark_itself_adds_to_a_sink_is_accepted():
    assert sink(checkpointlocation="/c", queryname="q", topic="t").topic == "t"


def test_a_sink_is_exactly_once_unless_told_otherwise():
    assert sink().exactly_once
    assert sink(deliveryGuarantee="exactly-once", acks="-1").exactly_once
    assert not sink(deliveryGuarantee="at-least-once", acks="1").exactly_once


def test_a_sink_and_a_batch_may_have_names():
    options = sink(sinkId="s", batchId="0", transaction__timeout__ms="5000")
    assert (options.sink_id, options.batch_id) == ("s", 0)
    assert options.transaction_timeout_ms == 5000
    assert sink().transaction_timeout_ms == 3_600_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deliveryGuarantee": "maybe"}, "must be 'exactly-once' or 'at-least-once'"),
        ({"sinkId": ""}, "'sinkId' must be a name of 1 to 249 characters"),
        ({"batchId": "1"}, "'batchId' needs 'sinkId'"),
        ({"batchId": "-1", "sinkId": "s"}, "'batchId' must be a whole number from 0"),
        ({"batchId": "1_0", "sinkId": "s"}, "'batchId' must be a whole number from 0"),
        ({"batchId": "\N{ARABIC-INDIC DIGIT FIVE}", "sinkId": "s"}, "'batchId' must be a whole"),
        ({"sinkPart": "p", "sinkId": "s"}, "set that, or leave 'sinkPart' out"),
        ({"sinkId": "s", "deliveryGuarantee": "at-least-once"}, "belongs to exactly-once"),
        ({"kafka.transaction.timeout.ms": "1"}, "'transaction.timeout.ms' must be a whole number"),
        ({"acks": "1"}, "'acks' = '1' can't be used with exactly-once: leave it out, or set"),
        ({"topic": "a/b"}, "characters other than"),
        ({"acks": "2"}, "'acks' must be 'all' or"),
        ({"compression.type": "rar"}, "'compression.type' must be 'none' or 'gzip'"),
        ({"batch.size": "0"}, "'batch.size' must be a whole number"),
        ({"createTopic": "true"}, "'createTopic' needs 'topic'"),
        ({"topic": "t", "topic.key": "id"}, "'topic.key' says how a topic is made: set createTo"),
        (
            {"topic": "t", "createTopic": "true", "topic.partitions": "0"},
            "'topic.partitions' must be a whole number from 1",
        ),
    ],
)
def test_a_wrong_sink_option_is_one_line_that_names_it(options, message):
    assert_refused(sink, options, message)
