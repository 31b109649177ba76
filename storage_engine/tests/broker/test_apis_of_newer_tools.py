"""What tools of Kafka 4 ask brokers for: features, resources with settings, topics by pages, levels
of loggers, offsets of remote storage."""

import logging

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import api_versions, list_offsets
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.messages import (
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_config_resources,
    update_features,
)
from storage_engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)

TP = TopicPartition("t", 0)
LOGGER = "storage_engine.broker.tests_of_levels"


def updated(topic, version, **update):
    row = update_features.UpdateFeaturesRequest.FeatureUpdateKey(**update)
    request = update_features.UpdateFeaturesRequest(feature_updates=[row])
    return topic.answer(topic.ask(1, update_features.API, version, request))


def test_a_feature_is_confirmed_at_the_level_that_the_versions_of_the_broker_name(topic):
    versions = topic.answer(topic.ask(1, api_versions.API, 3, api_versions.ApiVersionsRequest()))
    (feature,) = versions.finalized_features
    for version in (0, 1, 2):
        answer = updated(
            topic, version, feature=feature.name, max_version_level=feature.max_version
        )
        assert answer.error_code == 0
        assert [each.error_code for each in answer.results] == ([0] if version < 2 else [])


@pytest.mark.parametrize(
    ("feature", "level", "said"),
    [
        ("transaction.version", 3, "supports levels 2 to 2"),
        ("transaction.version", 0, "supports levels 2 to 2"),
        ("group.vision", 1, "does not know the feature; it knows transaction.version"),
    ],
)
def test_another_level_or_feature_is_refused_with_the_reason(topic, feature, level, said):
    (row,) = updated(topic, 1, feature=feature, max_version_level=level).results
    assert row.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in row.error_message
    whole = updated(topic, 2, feature=feature, max_version_level=level)
    assert whole.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert said in whole.error_message


def resources(topic, version=1, **fields):
    request = list_config_resources.ListConfigResourcesRequest(**fields)
    answer = topic.answer(topic.ask(1, list_config_resources.API, version, request))
    rows = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    return answer.error_code, rows


def test_resources_with_settings_are_topics_and_brokers(topic):
    brokers = ["1", "2", "3"]
    assert resources(topic, resource_types=[2]) == (0, [(2, "t")])
    assert resources(topic, resource_types=[]) == (
        0,
        [(2, "t"), *((4, name) for name in brokers), *((8, name) for name in brokers)],
    )
    # Client metrics have none, and version 0 asks for them alone.
    assert resources(topic, resource_types=[16, 32]) == (0, [])
    assert resources(topic, version=0) == (0, [])
    assert resources(topic, resource_types=[99]) == (ErrorCode.UNSUPPORTED_VERSION, [])


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


def offset(topic, timestamp, version=11):
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, timestamp)])
    leader = topic.state(TP).leader
    (row,) = topic.answer(topic.ask(leader, list_offsets.API, version, request)).partitions
    return row.error_code, row.offset


def test_all_of_the_log_is_local(topic):
    assert offset(topic, list_offsets.EARLIEST_LOCAL_TIMESTAMP) == (0, 0)
    assert offset(topic, list_offsets.LATEST_TIERED_TIMESTAMP) == (0, -1)
    assert offset(topic, list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP) == (0, -1)
    assert offset(topic, list_offsets.EARLIEST_LOCAL_TIMESTAMP, version=8) == (0, 0)
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert offset(topic, list_offsets.EARLIEST_LOCAL_TIMESTAMP, version=7) == refused
    assert offset(topic, list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP, version=10) == refused
    assert offset(topic, -7) == refused


@pytest.fixture
def logger():
    made = logging.getLogger(LOGGER)
    yield made
    made.setLevel(logging.NOTSET)


def levels(topic, broker="1"):
    made = describe_configs.DescribeConfigsRequest
    row = made.DescribeConfigsResource(
        resource_type=8, resource_name=broker, configuration_keys=None
    )
    (result,) = topic.answer(topic.ask(1, describe_configs.API, 4, made(resources=[row]))).results
    return result.error_code, {each.name: each.value for each in result.configs}


def altered(topic, *changes, broker="1", validate_only=False):
    made = incremental_alter_configs.IncrementalAlterConfigsRequest
    row = made.AlterConfigsResource
    configs = [
        row.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    request = made(
        resources=[row(resource_type=8, resource_name=broker, configs=configs)],
        validate_only=validate_only,
    )
    (answer,) = topic.answer(topic.ask(1, incremental_alter_configs.API, 1, request)).responses
    return answer.error_code


def test_the_level_of_a_logger_is_shown_set_and_deleted(topic, logger):
    before = levels(topic)[1][LOGGER]
    assert altered(topic, (LOGGER, 0, "ERROR"), validate_only=True) == 0
    assert levels(topic)[1][LOGGER] == before
    assert altered(topic, (LOGGER, 0, "ERROR")) == 0
    assert levels(topic)[1][LOGGER] == "ERROR"
    assert not logger.isEnabledFor(logging.WARNING)
    assert altered(topic, (LOGGER, 1, None)) == 0
    assert levels(topic)[1][LOGGER] == before


def test_of_several_levels_all_are_set_or_none(topic, logger):
    before = levels(topic)[1][LOGGER]
    bad = [("no.such.logger", 0, "INFO"), (LOGGER, 0, "LOUD"), ("root", 1, None), (LOGGER, 2, "x")]
    for each in bad:
        assert altered(topic, (LOGGER, 0, "FATAL"), each) in (
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REQUEST,
        )
        assert levels(topic)[1][LOGGER] == before
    assert "no.such.logger" not in logging.Logger.manager.loggerDict


def test_loggers_are_those_of_the_broker_that_is_asked(topic):
    assert levels(topic, broker="2") == (ErrorCode.INVALID_REQUEST, {})
    assert altered(topic, ("root", 0, "INFO"), broker="2") == ErrorCode.INVALID_REQUEST
