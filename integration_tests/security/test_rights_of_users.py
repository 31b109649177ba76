"""Users who have logged in may do what rules allow them, and nothing else: librdkafka's producers,
consumers and transactions, and our own clients with the exactly-once sink.

Brokers and the administrator come by the open listener, as User:ANONYMOUS, a super user.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from connector.connections import close_all
from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink.writers import HeadraceStreamWriter
from integration_tests.security.secured_cluster import (
    SecuredCluster,
    secured_cluster,
    wait_until_in_force,
)
from integration_tests.support.cluster_support import wait_until
from integration_tests.transactions.test_named_writes_count_each_number import Query
from storage_engine.client import Admin, BulkReader, NewTopic
from storage_engine.client import Consumer as OurConsumer
from storage_engine.client import Producer as OurProducer
from storage_engine.client import TopicPartition as OurPartition
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import CommitOutcome, MicroBatches
from storage_engine.core.errors import ErrorCode
from storage_engine.core.errors import KafkaError as OurError
from storage_engine.core.security.acl_rules import AclBinding as OurBinding

SETTINGS = {
    "authorizer.class.name": "AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "3000",
}
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
TRANSACTION = ResourceType.TRANSACTIONAL_ID
ANY_RULE = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("rights")
    with secured_cluster(folder, brokers=2, more=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(made) -> Iterator[SecuredCluster]:
    """Nobody has a right."""
    yield made
    _delete_all(made)


def _delete_all(cluster: SecuredCluster) -> None:
    (outcome,) = _admin(cluster).delete_acls([ANY_RULE]).values()
    outcome.result(30)
    wait_until_in_force(cluster.brokers.bootstrap("OPEN"), lambda rules: not rules)


@lru_cache(maxsize=1)
def _admin_at(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def _admin(cluster: SecuredCluster) -> AdminClient:
    """Kept, since an outcome dies with its client; one, since each looks for its broker forever."""
    return _admin_at(cluster.brokers.bootstrap("OPEN"))


@pytest.fixture(scope="module", autouse=True)
def _no_admin_is_left() -> Iterator[None]:
    yield
    _admin_at.cache_clear()


def _allow(
    cluster: SecuredCluster,
    *rights: tuple[AclOperation, ResourceType, str],
    principal: str = "User:bob",
    permission: AclPermissionType = AclPermissionType.ALLOW,
    host: str = "*",
) -> None:
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, principal, host, operation, permission)
        for operation, kind, name in rights
    ]
    for outcome in _admin(cluster).create_acls(rules).values():
        outcome.result(30)
    wanted = {
        (int(kind.value), name, principal, host, int(operation.value), int(permission.value))
        for operation, kind, name in rights
    }

    def are_there(told: list[OurBinding]) -> bool:
        return wanted <= {
            (
                int(pattern.resource_type),
                pattern.name,
                rule.principal,
                rule.host,
                int(rule.operation),
                int(rule.permission),
            )
            for pattern, rule in told
        }

    wait_until_in_force(cluster.brokers.bootstrap("OPEN"), are_there)


def _new_topic(cluster: SecuredCluster) -> str:
    topic = f"t-{uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": cluster.brokers.bootstrap("OPEN")}) as ours:
        ours.create_topics([NewTopic(name=topic, partitions=1, replication_factor=2)])
    return topic


def _produced(config: dict[str, str], topic: str, value: bytes = b"x") -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": "20000", "log_level": "0"})
    producer.produce(topic, value, on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(60)
    return outcomes[0]


def test_a_user_without_rights_may_write_nothing_and_with_them_only_there(cluster):
    mine, other = _new_topic(cluster), _new_topic(cluster)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        refused = _produced(cluster.bob("SASL", mechanism), mine)
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    _allow(cluster, (AclOperation.WRITE, TOPIC, mine))
    assert _produced(cluster.bob("SASL"), mine) is None
    assert _produced(cluster.bob("BOTH"), mine) is None
    refused = _produced(cluster.bob("SASL"), other)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_subject_of_a_certificate_is_a_principal(cluster):
    topic = _new_topic(cluster)
    config = cluster.config(
        "MTLS",
        ssl_certificate_location=cluster.client_file,
        ssl_key_location=cluster.client_file,
    )
    assert _produced(config, topic) is not None
    _allow(cluster, (AclOperation.WRITE, TOPIC, topic), principal="User:*")
    assert _produced(config, topic) is None


def test_a_rule_for_another_host_allows_nothing_and_a_denial_counts_more(cluster):
    topic = _new_topic(cluster)
    write = (AclOperation.WRITE, TOPIC, topic)
    _allow(cluster, write, host="10.1.2.3")
    assert _produced(cluster.bob("SASL"), topic) is not None
    _allow(cluster, write, host="127.0.0.1")
    assert _produced(cluster.bob("SASL"), topic) is None
    _allow(cluster, write, permission=AclPermissionType.DENY)
    assert _produced(cluster.bob("SASL"), topic) is not None


def test_a_consumer_needs_its_group_and_its_topic(cluster):
    topic, group = _new_topic(cluster), f"g-{uuid4().hex[:8]}"
    assert _produced({"bootstrap.servers": cluster.brokers.bootstrap("OPEN")}, topic) is None
    assert _consumed(cluster, topic, group) in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    _allow(cluster, (AclOperation.READ, TOPIC, topic))
    assert _consumed(cluster, topic, group) == KafkaError.GROUP_AUTHORIZATION_FAILED
    _allow(cluster, (AclOperation.READ, GROUP, group))
    assert _consumed(cluster, topic, group) is None


def _consumed(cluster: SecuredCluster, topic: str, group: str) -> int | None:
    """The code of the error that a consumer gets, None when it gets the record."""
    consumer = Consumer(
        {
            **cluster.bob("SASL"),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": "0",
        }
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None, "nothing came"
        error = message.error()
        if error is None:
            consumer.commit(message=message, asynchronous=False)
            return None
        code: int = error.code()
        return code
    finally:
        consumer.close()


def test_a_transaction_needs_its_transactional_id(cluster):
    topic, name = _new_topic(cluster), f"x-{uuid4().hex[:8]}"
    _allow(cluster, (AclOperation.WRITE, TOPIC, topic))
    config = {**cluster.bob("SASL"), "transactional.id": name, "log_level": "0"}
    with pytest.raises(KafkaException) as caught:
        Producer(config).init_transactions(60)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    _allow(cluster, (AclOperation.WRITE, TRANSACTION, name))
    producer = Producer(config)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction")
    producer.commit_transaction(60)


def test_a_stream_needs_its_sink_id_and_no_right_to_its_own_id(cluster, monkeypatch):
    """It also notes its sink under its own id, where it may."""
    topic, sink = _new_topic(cluster), f"x-{uuid4().hex[:8]}"
    query = Query(monkeypatch)
    query.is_at_work()
    config = cluster.bob("SASL") | {"topic": topic, "sinkId": sink}
    writer = HeadraceStreamWriter(parse_sink_options(config, is_stream=True))

    def write(batch: int) -> None:
        query.batch = batch
        rows = pa.record_batch({"value": ["row"]})
        writer.commit([writer.write(iter([rows]))], batch)

    _allow(cluster, (AclOperation.WRITE, TOPIC, topic))
    with pytest.raises(ConnectorError, match=r"^\[TRANSACTIONAL_ID_AUTHORIZATION_FAILED\] "):
        write(0)
    _allow(cluster, (AclOperation.WRITE, TRANSACTION, sink))
    write(0)
    with pytest.raises(OurError):
        _noted(cluster, query.id, 0, sink)
    _allow(cluster, (AclOperation.WRITE, TRANSACTION, query.id))
    write(1)
    assert _noted(cluster, query.id, 1, sink) is CommitOutcome.ALREADY_COMMITTED
    close_all()


def _noted(cluster: SecuredCluster, query: str, batch: int, sink: str) -> CommitOutcome:
    with Cluster(cluster.brokers.bootstrap("OPEN")) as ours:
        return MicroBatches(ours, query, query, owner=sink).commit(batch, [], drained=1).outcome


def test_listings_show_what_the_user_may_describe(cluster):
    mine, other = _new_topic(cluster), _new_topic(cluster)
    _allow(cluster, (AclOperation.DESCRIBE, TOPIC, mine))
    client = AdminClient(cluster.bob("SASL"))
    wait_until(lambda: mine in client.list_topics(timeout=10).topics, "it is shown")
    assert other not in client.list_topics(timeout=10).topics
    # librdkafka does not pass on the error of this answer.
    assert client.describe_acls(ANY_RULE).result(30) == []
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        client.delete_acls([ANY_RULE])[ANY_RULE].result(30)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        client.delete_topics([mine])[mine].result(30)


def test_a_reader_is_stopped_when_its_right_is_taken_away(cluster):
    topic, group = _new_topic(cluster), f"g-{uuid4().hex[:8]}"
    anonymous = {"bootstrap.servers": cluster.brokers.bootstrap("OPEN")}
    _allow(cluster, (AclOperation.READ, TOPIC, topic), (AclOperation.READ, GROUP, group))
    consumer = Consumer(
        {**cluster.bob("SASL"), "group.id": group, "enable.auto.commit": False, "log_level": "0"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        assert _produced(anonymous, topic, b"open") is None
        first = consumer.poll(30)
        assert first is not None and first.value() == b"open"
        _delete_all(cluster)
        assert _produced(anonymous, topic, b"secret") is None
        refused = consumer.poll(30)
        assert refused is not None and refused.error() is not None
        assert refused.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_a_member_that_loses_the_right_to_its_group_is_out(cluster):
    topic, group = _new_topic(cluster), f"g-{uuid4().hex[:8]}"
    anonymous = {"bootstrap.servers": cluster.brokers.bootstrap("OPEN")}
    _allow(cluster, (AclOperation.READ, TOPIC, topic), (AclOperation.READ, GROUP, group))
    assert _produced(anonymous, topic) is None
    config = {
        **cluster.bob("SASL"),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 500,
        "log_level": "0",
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    try:
        first = consumer.poll(30)
        assert first is not None and first.error() is None
        consumer.commit(message=first, asynchronous=False)
        of_group = AclBindingFilter(
            GROUP,
            group,
            ResourcePatternType.LITERAL,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        (outcome,) = _admin(cluster).delete_acls([of_group]).values()
        assert len(outcome.result(30)) == 1
        wait_until_in_force(
            cluster.brokers.bootstrap("OPEN"),
            lambda rules: all(pattern.name != group for pattern, _ in rules),
        )
        with pytest.raises(KafkaException) as caught:
            consumer.commit(message=first, asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert _consumed(cluster, topic, group) == KafkaError.GROUP_AUTHORIZATION_FAILED
        # Its heartbeats were refused: the group has no member any more.
        members = partial(_members, cluster, group)
        wait_until(lambda: members() == [], "the group has no member")
    finally:
        consumer.close()


def test_columns_need_the_rights_that_records_need_and_no_others(cluster):
    topic, bob = f"typed-{uuid4().hex[:8]}", cluster.bob("SASL")
    new = NewTopic(name=topic, partitions=1, replication_factor=1)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["anna", None]})

    def create() -> None:
        with Admin(bob) as ours:
            ours.create_topics([new], schema="id BIGINT NOT NULL, name STRING", key=["id"])

    def schema() -> None:
        with Admin(bob) as ours:
            ours.describe_schemas([topic])

    def write() -> None:
        with OurProducer(bob) as producer:
            producer.send_table(topic, rows).result(30)

    def read() -> None:
        with OurConsumer({**bob, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([OurPartition(topic, 0)])
            found = consumer.poll_table(30_000, columns=["name"], where="id = 1")
            assert found.to_pylist() == [{"name": "anna"}]

    def load() -> None:
        with BulkReader(bob) as reader:
            found = [reader.read(split, columns=["id"]) for split in reader.splits([topic])]
            assert pa.Table.from_batches(chain(*found)).to_pylist() == [{"id": 1}, {"id": 2}]

    def refused(*works: Callable[[], None]) -> None:
        for work in works:
            with pytest.raises(OurError) as caught:
                work()
            # The second: of a producer that may write nowhere, so that it gets no id.
            assert caught.value.code in (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )

    refused(create)
    _allow(cluster, (AclOperation.CREATE, TOPIC, topic))
    create()
    refused(schema, write, read, load)
    _allow(cluster, (AclOperation.DESCRIBE, TOPIC, topic))
    schema()
    refused(write, read)
    _allow(cluster, (AclOperation.WRITE, TOPIC, topic))
    write()
    refused(read, load)
    _delete_all(cluster)
    _allow(cluster, (AclOperation.READ, TOPIC, topic))
    schema()
    read()
    load()
    refused(write)


def _members(cluster: SecuredCluster, group: str) -> list[Any]:
    (described,) = _admin(cluster).describe_consumer_groups([group]).values()
    return list(described.result(30).members)
