"""Requests to the controller: found when it moves, not repeated into errors when an answer was
lost."""

import pytest

from storage_engine.client.admin.topics import (
    alter_group_configs,
    create_topic,
    delete_topics,
    describe_group_configs,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.protocol.messages.create_topics import CreateTopicsResponse
from storage_engine.protocol.messages.delete_topics import DeleteTopicsResponse
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
)
from storage_engine.tests.client.fake_cluster import FakeCluster, Fault


class Controller:
    """Creates and deletes topics of a fake cluster; only `id_` may."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake
        self.id_ = 1
        fake.admin = self._answer

    def _answer(self, broker_id, api, request):
        if api == "CreateTopics":
            rows = [
                CreateTopicsResponse.CreatableTopicResult(
                    name=topic.name, error_code=self._create(broker_id, topic.name)
                )
                for topic in request.topics
            ]
            return CreateTopicsResponse(topics=rows)
        names = [topic.name for topic in request.topics]
        rows = [
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, error_code=self._delete(broker_id, name)
            )
            for name in names
        ]
        return DeleteTopicsResponse(responses=rows)

    def _create(self, broker_id, name):
        if broker_id != self.id_:
            return ErrorCode.NOT_CONTROLLER
        if name in self._fake.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        self._fake.add_topic(name, [1])
        return ErrorCode.NONE

    def _delete(self, broker_id, name):
        if broker_id != self.id_:
            return ErrorCode.NOT_CONTROLLER
        known = self._fake.topics.pop(name, None)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NONE


@pytest.fixture
def controller(fake):
    return Controller(fake)


def on_first(api, fault):
    return lambda asked: fault if asked.api == api and asked.number == 1 else None


def test_a_controller_that_has_moved_is_found(fake, cluster, controller):
    cluster.metadata()
    controller.id_ = fake.controller_id = 3
    create_topic(cluster, "t", 1, 1)
    assert list(fake.topics) == ["t"]


def test_a_controller_that_does_not_know_yet_that_it_is_one_is_asked_again(
    fake, cluster, controller
):
    controller.id_ = 2
    fake.loop.call_soon_threadsafe(
        fake.loop.call_later, 0.2, lambda: setattr(fake, "controller_id", 2)
    )
    create_topic(cluster, "t", 1, 1)
    assert list(fake.topics) == ["t"]


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.DO_AND_DROP])
def test_a_lost_answer_to_a_creation_is_no_error(fake, cluster, controller, fault):
    fake.fault = on_first("CreateTopics", fault)
    create_topic(cluster, "t", 1, 1)
    assert list(fake.topics) == ["t"]


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.DO_AND_DROP])
def test_a_lost_answer_to_a_deletion_is_no_error(fake, cluster, controller, fault):
    fake.add_topic("t", [1])
    fake.fault = on_first("DeleteTopics", fault)
    delete_topics(cluster, ["t"])
    assert not fake.topics


def test_a_topic_that_exists_is_an_error_when_no_answer_was_lost(fake, cluster, controller):
    fake.add_topic("t", [1])
    with pytest.raises(KafkaError, match="topic 't'") as raised:
        create_topic(cluster, "t", 1, 1)
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_cluster_without_a_controller_is_an_error_at_the_deadline(fake):
    fake.controller_id = -1
    with (
        Cluster(fake.bootstrap_servers, deadline_ms=300) as cluster,
        pytest.raises(DeadlineExceededError, match="has no controller at the moment"),
    ):
        create_topic(cluster, "t", 1, 1)


def test_settings_of_groups_are_those_of_their_own_kind_of_resource(fake, cluster):
    asked = []

    def answer(_broker_id, api, request):
        (resource,) = request.resources
        asked.append((api, resource.resource_type, resource.resource_name))
        if api == "DescribeConfigs":
            result = DescribeConfigsResponse.DescribeConfigsResult
            entry = result.DescribeConfigsResourceResult(
                name="consumer.session.timeout.ms", value="7000", config_source=8
            )
            return DescribeConfigsResponse(results=[result(configs=[entry])])
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(responses=[row(resource_name="g")])

    fake.admin = answer
    alter_group_configs(cluster, "g", {"consumer.session.timeout.ms": "7000"})
    found = describe_group_configs(cluster, "g")["consumer.session.timeout.ms"]
    assert (found.value, found.source) == ("7000", ConfigSource.GROUP)
    assert asked == [("IncrementalAlterConfigs", 32, "g"), ("DescribeConfigs", 32, "g")]
