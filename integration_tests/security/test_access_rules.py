"""Access rules through the administration clients of librdkafka and kafka-python, and what they do
to producers and consumers that run.

Nobody logs in here: all are User:ANONYMOUS, who may use what no rule is about. So do the brokers.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACL, KafkaAdminClient, ResourcePattern
from kafka.admin import ACLFilter as KafkaPythonFilter
from kafka.admin import ACLOperation as KafkaPythonOperation
from kafka.admin import ACLPermissionType as KafkaPythonPermission
from kafka.admin import ResourcePatternFilter as KafkaPythonPatternFilter
from kafka.admin import ResourceType as KafkaPythonResource

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    running_cluster,
    wait_until,
)
from storage_engine.tools.local.local_cluster import LocalCluster

SETTINGS = (
    ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
)
EVERY_FIELD = (None, None, AclOperation.ANY, AclPermissionType.ANY)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=3, settings=SETTINGS) as made:
        yield made


def _binding(
    name: str,
    operation: AclOperation,
    principal: str = "User:carol",
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, pattern, principal, "*", operation, AclPermissionType.ALLOW
    )


def _create(cluster: LocalCluster, *bindings: AclBinding) -> None:
    client = admin(cluster)
    for outcome in client.create_acls(list(bindings)).values():
        outcome.result()


def _delete(cluster: LocalCluster, name: str, principal: str | None = None) -> int:
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.ANY,
        principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    client = admin(cluster)
    (outcome,) = client.delete_acls([wanted]).values()
    return len(outcome.result())


def _produced(cluster: LocalCluster, topic: str, value: bytes) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "message.timeout.ms": 20_000,
            "log_level": 0,
        }
    )
    producer.produce(topic, value, on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(60)
    return outcomes[0]


def test_librdkafka_makes_lists_and_removes_rules(cluster):
    rules = [
        _binding("made", AclOperation.READ),
        _binding("made-", AclOperation.ALL, pattern=ResourcePatternType.PREFIXED),
    ]
    _create(cluster, *rules)
    client = admin(cluster)

    def listed(pattern: ResourcePatternType) -> set[AclBinding]:
        wanted = AclBindingFilter(ResourceType.TOPIC, "made-it", pattern, *EVERY_FIELD)
        return set(client.describe_acls(wanted).result())

    wait_until(lambda: listed(ResourcePatternType.MATCH) == {rules[1]}, "all brokers know")
    assert listed(ResourcePatternType.LITERAL) == set()
    assert _delete(cluster, "made-") == 1
    wait_until(lambda: not listed(ResourcePatternType.MATCH), "all brokers know")


def test_kafka_python_makes_lists_and_removes_rules(cluster):
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    pattern = ResourcePattern(KafkaPythonResource.TOPIC, "python")
    rule = ACL(
        principal="User:carol",
        host="*",
        operation=KafkaPythonOperation.WRITE,
        permission_type=KafkaPythonPermission.ALLOW,
        resource_pattern=pattern,
    )
    made = client.create_acls([rule])
    assert not made["failed"]
    wanted = KafkaPythonFilter(
        principal=None,
        host=None,
        operation=KafkaPythonOperation.ANY,
        permission_type=KafkaPythonPermission.ANY,
        resource_pattern=KafkaPythonPatternFilter(
            KafkaPythonResource.TOPIC, "python", pattern.pattern_type
        ),
    )

    def listed() -> list[ACL]:
        return list(client.describe_acls(wanted)[0])

    wait_until(lambda: listed() == [rule], "all brokers know")
    ((_filter, deleted, _error),) = client.delete_acls([wanted])
    assert list(deleted) == [rule]
    wait_until(lambda: listed() == [], "all brokers know")
    client.close()


def test_a_producer_is_refused_and_taken_again(cluster):
    topic = f"written-{uuid4().hex[:8]}"
    create_topic(cluster, topic)
    assert _produced(cluster, topic, b"first") is None
    _create(cluster, _binding(topic, AclOperation.ALL))
    wait_until(lambda: _is_refused(_produced(cluster, topic, b"second")), "the rule counts")
    assert _delete(cluster, topic) == 1
    wait_until(lambda: _produced(cluster, topic, b"third") is None, "the rule no longer counts")


def test_a_consumer_that_reads_is_stopped_when_its_right_is_taken_away(cluster):
    topic = f"read-{uuid4().hex[:8]}"
    create_topic(cluster, topic)
    _create(cluster, _binding(topic, AclOperation.ALL, "User:ANONYMOUS"))
    wait_until(lambda: _produced(cluster, topic, b"first") is None, "the right counts")
    consumer = _reader(cluster, topic)
    try:
        first = _next(consumer)
        assert first.value() == b"first"
        _create(cluster, _binding(topic, AclOperation.WRITE, "User:ANONYMOUS"))
        _create(cluster, _binding(topic, AclOperation.READ))
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            None,
            AclOperation.ALL,
            AclPermissionType.ANY,
        )
        client = admin(cluster)
        (outcome,) = client.delete_acls([wanted]).values()
        assert len(outcome.result()) == 1
        wait_until(lambda: _is_refused(_first_read(cluster, topic)), "others may not read")
        assert _produced(cluster, topic, b"secret") is None
        assert _is_refused(_next(consumer).error())
    finally:
        consumer.close()


def _reader(cluster, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def _first_read(cluster, topic: str) -> KafkaError | None:
    consumer = _reader(cluster, topic)
    try:
        return _next(consumer).error()
    finally:
        consumer.close()


def _is_refused(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _next(consumer: Consumer):
    message = consumer.poll(30)
    assert message is not None, "nothing came"
    return message


def test_metadata_hides_what_may_not_be_described(cluster):
    topic = f"hidden-{uuid4().hex[:8]}"
    create_topic(cluster, topic)
    _create(cluster, _binding(topic, AclOperation.ALL))
    client = admin(cluster)
    wait_until(lambda: topic not in client.list_topics().topics, "it is hidden")

    def is_refused() -> bool:
        error = client.list_topics(topic).topics[topic].error
        return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    wait_until(is_refused, "whom the client asks knows it, too")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        client.delete_topics([topic])[topic].result()


def test_the_rules_outlive_a_restart_of_a_broker(cluster):
    topic = f"kept-{uuid4().hex[:8]}"
    create_topic(cluster, topic)
    _create(cluster, _binding(topic, AclOperation.ALL))
    cluster.kill_broker(1)
    cluster.start_broker(1)
    refused = _produced(cluster, topic, b"never")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
