"""Options of the source, and the one-line error of each that is wrong."""

import pytest

from connector.options.offset_specs import AtTimestamp, PerPartitionTimestamp
from connector.options.subscription import SubscribedTopics
from connector.schema import ALL_COLUMNS, COLUMNS
from connector.tests.options.parsed import assert_refused, one_line, source
from storage_engine.core.ids import TopicPartition


def test_defaults_are_those_of_sparks_kafka_connector():
    options = source()
    assert options.subscription == SubscribedTopics(names=("t",))
    assert options.fail_on_data_loss
    assert options.columns == COLUMNS
    assert options.starting is None
    assert options.max_offsets_per_trigger is None
    assert options.poll_timeout_ms == 120_000
    assert options.isolation_level == "read_committed"


def test_columns_come_in_the_order_of_the_schema_whatever_the_order_asked_for():
    assert source(columns=" timestampTYPE, key").columns == ("key", "timestampType")
    assert source(columns="value,headers").columns == ("value", "headers")
    assert source(includeHeaders="true").columns == ALL_COLUMNS


def test_a_timestamp_outranks_timestamps_per_partition_which_outrank_offsets():
    by_partition = '{"t":{"0":5}}'
    assert source(startingOffsets="latest", startingOffsetsByTimestamp=by_partition).starting == (
        PerPartitionTimestamp(timestamps_ms={TopicPartition("t", 0): 5})
    )
    assert source(
        startingTimestamp="9", startingOffsetsByTimestamp=by_partition
    ).starting == AtTimestamp(timestamp_ms=9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "value,offsets"}, "'columns' must be one or more of key, value, topic"),
        ({"columns": "value", "includeHeaders": "true"}, "contradict each other"),
        ({"columns": "headers", "includeHeaders": "false"}, "contradict each other"),
    ],
)
def test_columns_that_no_record_has_are_an_error_where_topics_have_no_schema(options, message):
    with one_line(message):
        assert source(**options).columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is greater than"),
        (
            {"minRecordsPerPartition": "9", "maxRecordsPerPartition": "5"},
            "'minRecordsPerPartition' (9) is greater than 'maxRecordsPerPartition' (5)",
        ),
        ({"minRecordsPerPartition": "-1"}, "must be a whole number from 0 to"),
        ({"where": " "}, "'where' must be a condition such as fare > 10"),
        ({"maxBytesPerPartition": "0"}, "'maxBytesPerPartition' must be a whole number"),
        ({"groupIdPrefix": ""}, "'groupIdPrefix' must be a name of 1 to 200 characters"),
        ({"kafka.group.id": "g" * 201}, "'group.id' must be a name of 1 to 200 characters"),
        ({"isolationLevel": "dirty"}, "'isolationLevel' must be 'read_committed' or"),
        (
            {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "contradict",
        ),
    ],
)
def test_a_wrong_source_option_is_one_line_that_names_it(options, message):
    assert_refused(source, options, message)
