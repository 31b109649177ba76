"""What options mean, and the one-line error of each that is wrong."""

from dataclasses import replace

import pytest

from connector.errors import OptionError
from connector.options.offset_specs import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Everywhere,
    PerPartition,
    PerPartitionTimestamp,
)
from connector.options.sink_options import TopicCreation, parse_sink_options
from connector.options.source_options import parse_source_options
from connector.options.subscription import AssignedPartitions, SubscribedTopics, TopicPattern
from connector.schema import ALL_COLUMNS, COLUMNS
from storage_engine.core.ids import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def source(**options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return parse_source_options(SERVERS | {"subscribe": "t"} | named)


def sink(**options):
    named = {name.replace("__", "."): text for name, text in options.items()}
    return parse_sink_options(SERVERS | named)


def test_defaults_are_those_of_sparks_kafka_connector():
    options = source()
    assert options.subscription == SubscribedTopics(names=("t",))
    assert options.fail_on_data_loss
    assert options.columns == COLUMNS
    assert options.starting is None
    assert options.max_offsets_per_trigger is None
    assert options.poll_timeout_ms == 120_000
    assert options.isolation_level == "read_committed"


def test_names_are_case_insensitive_and_the_prefix_may_be_left_out():
    options = parse_source_options(
        {"bootstrap.servers": "a:1, b:2", "SUBSCRIBE": "y,x", "maxoffsetspertrigger": "7"}
    )
    assert options.connection.bootstrap_servers == "a:1,b:2"
    assert options.subscription == SubscribedTopics(names=("x", "y"))
    assert options.max_offsets_per_trigger == 7


OF_A_TABLE = {"provider": "headrace", "owner": "root", "comment": "c", "collation": "UTF8_BINARY"}


def test_what_spark_adds_in_create_table_is_no_option_of_the_users():
    doubled = {f"option.{key}": text for key, text in SERVERS.items()}
    options = SERVERS | doubled | {"subscribe": "t", "option.subscribe": "t"} | OF_A_TABLE
    assert parse_source_options(options) == source()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"owner": "root"}, "owner"),
        ({"provider": "kafka"}, "provider"),
        ({"option.subscribe": "t"}, "option.subscribe"),
        (OF_A_TABLE | {"option.subscribe": "u"}, "option.subscribe"),
        (OF_A_TABLE | {"suscribe": "u"}, "suscribe"),
        (OF_A_TABLE | {"location": "file:/x", "path": "file:/x"}, "location"),
    ],
)
def test_elsewhere_its_words_are_unknown_and_so_are_other_properties_of_a_table(more, named):
    with pytest.raises(OptionError, match=f"'{named}' is not an option"):
        source(**more)


def test_columns_come_in_the_order_of_the_schema_whatever_the_order_asked_for():
    assert source(columns=" timestampTYPE, key").columns == ("key", "timestampType")
    assert source(columns="value,headers").columns == ("value", "headers")
    assert source(includeHeaders="true").columns == ALL_COLUMNS


def test_assign_and_pattern_are_understood():
    assigned = parse_source_options(SERVERS | {"assign": '{"t":[1,0]}'})
    assert assigned.subscription == AssignedPartitions(
        partitions=(TopicPartition("t", 0), TopicPartition("t", 1))
    )
    pattern = parse_source_options(SERVERS | {"subscribePattern": "t.*"})
    assert pattern.subscription == TopicPattern(regex="t.*")


def test_starting_offsets_take_words_and_json():
    assert source(startingOffsets="Earliest").starting == Everywhere(special=EARLIEST)
    assert source(startingOffsets="latest").starting == Everywhere(special=LATEST)
    assert source(startingOffsets='{"t":{"0":23,"1":-2}}').starting == PerPartition(
        offsets={TopicPartition("t", 0): 23, TopicPartition("t", 1): EARLIEST}
    )


def test_a_timestamp_outranks_timestamps_per_partition_which_outrank_offsets():
    by_partition = '{"t":{"0":5}}'
    assert source(startingOffsets="latest", startingOffsetsByTimestamp=by_partition).starting == (
        PerPartitionTimestamp(timestamps_ms={TopicPartition("t", 0): 5})
    )
    assert source(
        startingTimestamp="9", startingOffsetsByTimestamp=by_partition
    ).starting == AtTimestamp(timestamp_ms=9)


def test_times_take_units():
    assert source(maxTriggerDelay="15m").max_trigger_delay_ms == 900_000
    assert source(maxTriggerDelay="250ms").max_trigger_delay_ms == 250


def test_a_sink_setting_works_with_and_without_the_prefix():
    assert sink(kafka__acks="1", deliveryGuarantee="at-least-once").acks == 1
    assert sink(acks="all").acks == -1
    assert sink(kafka__compression__type="ZSTD").compression == "zstd"
    assert sink(batch__size="1000").batch_bytes == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "value,offsets"}, "'columns' must be one or more of key, value, topic"),
        ({"columns": "value", "includeHeaders": "true"}, "contradict each other"),
        ({"columns": "headers", "includeHeaders": "false"}, "contradict each other"),
    ],
)
def test_columns_that_no_record_has_are_an_error_where_topics_have_no_schema(options, message):
    with pytest.raises(OptionError) as raised:
        assert source(**options).columns
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_of_columns_may_have_commas_and_stand_in_backquotes():
    assert source(columns="id, `a, b`,ID,`x``y`").chosen_columns == ("id", "a, b", "x`y")
    assert source().chosen_columns is None


def test_a_topic_is_made_of_the_rows_columns_only_when_asked_for():
    assert sink(topic="t").creation is None
    made = sink(topic="t", createTopic="true", topic__key="id, at", topic__partitions="3")
    assert made.creation == TopicCreation(key=("id", "at"), partitions=3, replication_factor=None)


def test_what_spark_itself_adds_to_a_sink_is_accepted():
    assert sink(checkpointlocation="/c", queryname="q", topic="t").topic == "t"


def test_a_client_setting_without_effect_is_told_to_the_log():
    (note,) = source(kafka__session__timeout__ms="6000").notes
    assert note.startswith("the option 'session.timeout.ms' has no effect here")


def test_a_sink_is_exactly_once_unless_told_otherwise():
    assert sink().exactly_once
    assert sink(deliveryGuarantee="exactly-once", acks="-1").exactly_once
    assert not sink(deliveryGuarantee="at-least-once", acks="1").exactly_once


def test_a_sink_and_a_batch_may_have_names():
    options = sink(sinkId="s", batchId="0", transaction__timeout__ms="5000")
    assert (options.sink_id, options.batch_id) == ("s", 0)
    assert options.transaction_timeout_ms == 5000
    assert sink().transaction_timeout_ms == 3_600_000


def test_origins_are_known_by_the_sinks_own_brokers_unless_others_are_named():
    keyed = {"idempotentKey": "Topic, partition,offset", "sinkId": "s"}
    options = sink(**keyed)
    assert options.origin.columns == ("topic", "partition", "offset")
    assert options.origin.connection == options.connection
    elsewhere = sink(**keyed, originServers="a:1, b:2").origin.connection
    assert elsewhere == replace(options.connection, bootstrap_servers="a:1,b:2")
    assert sink(**keyed, originServers="none").origin.connection is None
    assert sink(sinkId="s").origin is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "t"}, "'subscibe' is not an option of the source; did you mean 'subscribe'?"),
        ({"startingOffset": "x"}, "did you mean 'startingOffsets'?"),
        ({"kafka.isolation.levle": "x"}, "did you mean 'isolation.level'?"),
        ({"zzz": "1"}, "'zzz' is not an option of the source"),
        ({"kafka.subscribe": "t"}, "'kafka.subscribe' is not an option"),
        ({"topic": "t"}, "'topic' is an option of the sink, not of the source"),
        ({"maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' must be a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1"),
        ({"failOnDataLoss": "yes"}, "'failOnDataLoss' must be true or false, not 'yes'"),
        ({"startingOffsets": "first"}, "'startingOffsets' must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "must be an offset, -1 or -2"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "'startingOffsets' must be"),
        ({"startingOffsets": '{"t":[0]}'}, "'startingOffsets' must be"),
        ({"startingOffsets": "{}"}, "'startingOffsets' must be"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "must be ms since 1970"),
        ({"assign": '{"t":[0]}'}, "not 'subscribe' and 'assign'"),
        ({"subscribe": " , "}, "one topic or more"),
        ({"subscribe": "a b"}, "characters other than"),
        ({"maxTriggerDelay": "soon"}, "a time such as 15m"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is greater than"),
        (
            {"minRecordsPerPartition": "9", "maxRecordsPerPartition": "5"},
            "'minRecordsPerPartition' (9) is greater than 'maxRecordsPerPartition' (5)",
        ),
        ({"minRecordsPerPartition": "-1"}, "must be a whole number from 0 to"),
        ({"kafka.bootstrap.servers": "localhost"}, "must be host:port"),
        ({"kafka.bootstrap.servers": "h:0"}, "must be host:port"),
        ({"bootstrap.servers": "other:1"}, "with and without 'kafka.'"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets instead"),
        ({"kafka.key.deserializer": "x"}, "can't be set"),
        ({"kafka.enable.auto.commit": "true"}, "can't be set"),
        ({"kafka.interceptor.classes": "x"}, "can't be set"),
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "Kerberos is not supported"),
        ({"columns": " ,"}, "'columns' must be one name or more"),
        ({"columns": "id,`fare"}, "'columns' must be names separated by commas, such as id"),
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
    with pytest.raises(OptionError) as raised:
        parse_source_options(SERVERS | {"subscribe": "t"} | options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


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
        ({"idempotentKey": "t,p,o"}, "'idempotentKey' needs 'sinkId'"),
        ({"idempotentKey": "t,p", "sinkId": "s"}, "must be three columns such as topic"),
        (
            {"idempotentKey": "t,p,T", "sinkId": "s"},
            "must be three columns such as topic",
        ),
        ({"idempotentKey": "key,p,o", "sinkId": "s"}, "must be columns other than key, value and"),
        (
            {"idempotentKey": "t,p,o", "sinkId": "s", "batchId": "1"},
            "'batchId' and 'idempotentKey' both say what was written before",
        ),
        ({"originServers": "h:1"}, "'originServers' needs 'idempotentKey'"),
        (
            {"idempotentKey": "t,p,o", "sinkId": "s", "originServers": "nowhere"},
            "'originServers' must be host:port",
        ),
        (
            {"idempotentKey": "t,p,o", "deliveryGuarantee": "at-least-once"},
            "'idempotentKey' belongs to exactly-once delivery",
        ),
        ({"kafka.transaction.timeout.ms": "1"}, "'transaction.timeout.ms' must be a whole number"),
        ({"acks": "1"}, "'acks' = '1' can't be used with exactly-once: leave it out, or set"),
        ({"topc": "t"}, "did you mean 'topic'?"),
        ({"topic": "a/b"}, "characters other than"),
        ({"acks": "2"}, "'acks' must be 'all' or"),
        ({"compression.type": "rar"}, "'compression.type' must be 'none' or 'gzip'"),
        ({"batch.size": "0"}, "'batch.size' must be a whole number"),
        ({"subscribe": "t"}, "'subscribe' is an option of the source, not of the sink"),
        ({"createTopic": "true"}, "'createTopic' needs 'topic'"),
        ({"topic": "t", "topic.key": "id"}, "'topic.key' says how a topic is made: set createTo"),
        (
            {"topic": "t", "createTopic": "true", "topic.partitions": "0"},
            "'topic.partitions' must be a whole number from 1",
        ),
    ],
)
def test_a_wrong_sink_option_is_one_line_that_names_it(options, message):
    with pytest.raises(OptionError) as raised:
        parse_sink_options(SERVERS | options)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_servers_and_a_missing_subscription_are_named():
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers' must be set"):
        parse_source_options({"subscribe": "t"})
    with pytest.raises(OptionError, match="not none"):
        parse_source_options(SERVERS)
