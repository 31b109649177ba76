"""librdkafka and kafka-python understand what we write, and we understand them."""

import socket
import struct
from collections.abc import Mapping
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

from storage_engine.protocol.apis import api_versions, fetch, list_offsets, metadata, produce
from storage_engine.protocol.apis.registry import SERVED_RANGES
from storage_engine.protocol.apis.spec import AnyApi, VersionRange, newest_common_version
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)
from storage_engine.protocol.messages import init_producer_id
from storage_engine.protocol.messages.find_coordinator import API as FIND_COORDINATOR
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorRequest
from storage_engine.tests.protocol.apis.buffers import joined
from storage_engine.tests.protocol.apis.fake_broker import TOPIC, FakeBroker
from storage_engine.tests.sampling import by_turns

TIMEOUT_S = 60
admin_api: Any = confluent_kafka.admin
Headers = list[tuple[str, str | bytes | None]]
RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"JFK", b"late", [("carrier", b"UA")]),
    (b"LGA", None, []),
    (None, b"", []),
]

NEWEST = dict(SERVED_RANGES)
PLAIN = {
    **SERVED_RANGES,
    0: VersionRange(0, 8),
    1: VersionRange(4, 11),
    2: VersionRange(1, 5),
    3: VersionRange(0, 8),
    10: VersionRange(0, 2),
    19: VersionRange(2, 4),
    20: VersionRange(1, 3),
    21: VersionRange(0, 1),
    22: VersionRange(0, 1),
    23: VersionRange(2, 3),
    32: VersionRange(1, 3),
    37: VersionRange(0, 1),
    44: VersionRange(0, 0),
}
"""The newest versions that are not flexible."""

RANGES = pytest.mark.parametrize(
    "ranges", [pytest.param(NEWEST, id="newest"), pytest.param(PLAIN, id="plain")]
)


def produce_with_librdkafka(address: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 50}
    )
    failures: list[Any] = []
    for key, value, headers in RECORDS:
        producer.produce(
            TOPIC,
            value,
            key,
            partition=0,
            headers=list(headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures


def produce_with_kafka_python(address: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    futures = [
        producer.send(TOPIC, value, key, partition=0, headers=headers)
        for key, value, headers in RECORDS
    ]
    offsets = [future.get(TIMEOUT_S).offset for future in futures]
    producer.close(timeout=TIMEOUT_S)
    assert offsets == [0, 1, 2]


def consume_with_librdkafka(address: str) -> list[Any]:
    settings = {"group.id": "g", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, **settings})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    messages = consumer.consume(len(RECORDS), TIMEOUT_S)
    consumer.close()
    assert [message.error() for message in messages] == [None] * len(RECORDS)
    return [(message.key(), message.value(), message.headers() or []) for message in messages]


def consume_with_kafka_python(address: str) -> list[Any]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, consumer_timeout_ms=TIMEOUT_S * 1000, group_id=None
    )
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    records = [next(consumer) for _ in RECORDS]
    consumer.close()
    return [(record.key, record.value, list(record.headers)) for record in records]


NEWEST_PRODUCE = {produce_with_librdkafka: 10, produce_with_kafka_python: 9}
NEWEST_FETCH = {consume_with_librdkafka: 16, consume_with_kafka_python: 12}
"""The newest versions that these clients speak."""


PAIRS = (
    (produce_with_librdkafka, consume_with_librdkafka),
    (produce_with_librdkafka, consume_with_kafka_python),
    (produce_with_kafka_python, consume_with_kafka_python),
    (produce_with_kafka_python, consume_with_librdkafka),
)
"""In this order each of them has both ranges when they take turns."""


@pytest.mark.parametrize(("pair", "name"), by_turns(PAIRS, ("newest", "plain")))
def test_what_one_client_produces_the_other_consumes(pair: tuple[Any, Any], name: str) -> None:
    producer, consumer = pair
    ranges = {"newest": NEWEST, "plain": PLAIN}[name]
    with FakeBroker(ranges) as broker:
        producer(broker.address)
        assert consumer(broker.address) == RECORDS
        newest = min(ranges[0].max_version, NEWEST_PRODUCE[producer])
        assert max(broker.versions_asked(0)) == newest
        newest = min(ranges[1].max_version, NEWEST_FETCH[consumer])
        assert max(broker.versions_asked(1)) == newest


@RANGES
def test_librdkafka_lists_all_topics(ranges: Mapping[int, VersionRange]) -> None:
    with FakeBroker(ranges) as broker:
        client = confluent_kafka.Producer({"bootstrap.servers": broker.address})
        assert list(client.list_topics(timeout=TIMEOUT_S).topics) == [TOPIC]


@RANGES
def test_librdkafka_administers(ranges: Mapping[int, VersionRange]) -> None:
    with FakeBroker(ranges) as broker:
        admin = admin_api.AdminClient({"bootstrap.servers": broker.address})
        new_topics = [
            admin_api.NewTopic(name, 3, 1, config={"retention.ms": "7"})
            for name in (TOPIC, "weather")
        ]
        created = admin.create_topics(new_topics, request_timeout=TIMEOUT_S)
        assert created[TOPIC].result(TIMEOUT_S) is None
        with pytest.raises(confluent_kafka.KafkaException, match="weather exists"):
            created["weather"].result(TIMEOUT_S)

        more = admin.create_partitions([admin_api.NewPartitions(TOPIC, 6)])
        assert more[TOPIC].result(TIMEOUT_S) is None

        resource = admin_api.ConfigResource("topic", TOPIC)
        described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert described["retention.ms"].value == "7"

        change = admin_api.ConfigEntry(
            "retention.ms", "8", incremental_operation=admin_api.AlterConfigOpType.SET
        )
        changed = admin_api.ConfigResource("topic", TOPIC, incremental_configs=[change])
        assert admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S) is None

        partition = confluent_kafka.TopicPartition(TOPIC, 0, 5)
        deleted = admin.delete_records([partition])[partition].result(TIMEOUT_S)
        assert deleted.low_watermark == 5

        cluster = admin.describe_cluster(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert (cluster.cluster_id, cluster.controller.id) == ("fake", 1)

        assert admin.delete_topics([TOPIC])[TOPIC].result(TIMEOUT_S) is None
        asked = {key: request for key, _, request in broker.asked}
        first = asked[19].topics[0]
        assert (first.name, first.num_partitions, first.replication_factor) == (TOPIC, 3, 1)
        assert [(config.name, config.value) for config in first.configs] == [("retention.ms", "7")]
        assert (asked[37].topics[0].count, asked[37].topics[0].assignments) == (6, None)


@RANGES
def test_kafka_python_administers(ranges: Mapping[int, VersionRange]) -> None:
    with FakeBroker(ranges) as broker:
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.address)
        new_topic = kafka.admin.NewTopic(
            TOPIC, num_partitions=3, replication_factor=1, topic_configs={"retention.ms": "7"}
        )
        admin.create_topics([new_topic])
        admin.create_partitions({TOPIC: kafka.admin.NewPartitions(6)})
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, TOPIC)
        assert "retention.ms" in str(admin.describe_configs([resource]))
        assert admin.describe_cluster()["cluster_id"] == "fake"
        admin.delete_records({kafka.TopicPartition(TOPIC, 0): 5})
        admin.delete_topics([TOPIC])
        admin.close()
        for key in (19, 20, 21, 32, 37):
            assert broker.versions_asked(key) == {ranges[key].max_version}


class Peer:
    """A plain connection of our own to a foreign server."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, spec: AnyApi, version: int, request: Any) -> Any:
        self._correlation_id += 1
        frame = encode_request_frame(spec, version, self._correlation_id, "ours", request)
        self._socket.sendall(joined(frame))
        answer = memoryview(self._stream.read(struct.unpack(">i", self._stream.read(4))[0]))
        assert read_correlation_id(answer) == self._correlation_id
        return parse_response(spec, version, answer)


def test_a_foreign_server_answers_every_version_that_it_shares_with_us() -> None:
    """librdkafka's mock cluster is the server."""
    foreign = confluent_kafka.Producer({"test.mock.num.brokers": 1})
    brokers = foreign.list_topics(timeout=TIMEOUT_S).brokers
    (address,) = [f"{broker.host}:{broker.port}" for broker in brokers.values()]
    foreign.produce(TOPIC, b"late", b"JFK", partition=0)
    assert foreign.flush(TIMEOUT_S) == 0
    peer = Peer(address)
    served: dict[int, VersionRange] = {}
    for version in range(api_versions.API.max_version + 1):
        software = api_versions.ApiVersionsRequest(
            client_software_name="ours", client_software_version="1"
        )
        answer = peer.ask(api_versions.API, version, software)
        served = answer.ranges() or served

    def shared(spec: AnyApi) -> range:
        newest = newest_common_version(spec, served[spec.key])
        assert newest is not None
        return range(max(spec.min_version, served[spec.key][0]), newest + 1)

    for version in shared(metadata.API):
        answer = peer.ask(metadata.API, version, metadata.MetadataRequest(topics=[TOPIC]))
        assert [topic.topic for topic in answer.topics] == [TOPIC]
        assert f"{answer.brokers[0].host}:{answer.brokers[0].port}" == address
    for version in shared(list_offsets.API):
        question = list_offsets.ListOffsetsPartition(TOPIC, 0, list_offsets.LATEST_TIMESTAMP)
        found = peer.ask(list_offsets.API, version, list_offsets.ListOffsetsRequest([question]))
        assert found.partitions[0].offset == 1
    records = None
    for version in shared(fetch.BY_NAME):
        wanted = fetch.FetchPartition(TOPIC, 0, 0, 1 << 20)
        fetched = peer.ask(fetch.API, version, fetch.FetchRequest(500, 1, 1 << 20, [wanted]))
        assert fetched.partitions[0].high_watermark == 1
        records = bytes(fetched.partitions[0].records)
        assert b"late" in records
    assert records is not None
    # the mock forgets the log start offset in version 5
    versions = [version for version in shared(produce.API) if version != 5]
    for count, version in enumerate(versions, start=1):
        again = produce.ProducePartition(TOPIC, 0, records)
        stored = peer.ask(produce.API, version, produce.ProduceRequest(None, -1, 5000, [again]))
        assert (stored.partitions[0].error_code, stored.partitions[0].base_offset) == (0, count)
    for version in shared(init_producer_id.API):
        request = init_producer_id.InitProducerIdRequest()
        assert peer.ask(init_producer_id.API, version, request).producer_id >= 0
    for version in shared(FIND_COORDINATOR):
        wanted_key = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
        found = peer.ask(FIND_COORDINATOR, version, wanted_key)
        assert found.port or found.coordinators[0].port
    peer.close()
