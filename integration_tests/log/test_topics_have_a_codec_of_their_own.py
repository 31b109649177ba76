"""Topic setting `compression.type`: whatever clients compress with, a segment holds the topic's
codec, and all clients read it."""

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.settings_support import folder_of
from integration_tests.support.stored_logs import log_bytes
from storage_engine.protocol.records.record_batch import Codec, iter_headers
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

STORED = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
SAMPLE = ("uncompressed", "zstd")
SENT = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("codecs"), brokers=1) as running:
        yield running


def value(codec: str, number: int) -> bytes:
    return b"%s-%d-" % (codec.encode(), number) + b"abc" * (number % 200)


def note(offsets: list[int], error: object, message: Message) -> None:
    assert error is None
    offset = message.offset()
    assert offset is not None
    offsets.append(offset)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else in_full) for name in STORED]
)
def test_every_codec_is_stored_as_the_topics_and_read_by_all(cluster, name):
    topic = f"t-{name}"
    create_topic(cluster, topic, replication_factor=1, config={"compression.type": name})
    servers = cluster.bootstrap_servers
    expected: list[bytes] = []
    for codec in SENT:
        ours = [value(codec, n) for n in range(RECORDS)]
        expected += ours
        if codec in ("none", "lz4"):
            with_python = KafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                compression_type=None if codec == "none" else codec,
                linger_ms=2,
            )
            sent = [with_python.send(topic, each, partition=0) for each in ours]
            with_python.flush()
            assert [each.get(30).offset for each in sent] == list(
                range(len(expected) - RECORDS, len(expected))
            )
            with_python.close()
            continue
        # Pipelined: five requests under way, whose batches must keep their order.
        offsets: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.num.messages": 7,
            }
        )
        for each in ours:
            producer.produce(topic, each, partition=0, on_delivery=partial(note, offsets))
            producer.poll(0)
        assert producer.flush(30) == 0
        assert offsets == list(range(len(expected) - RECORDS, len(expected)))

    stored = {
        header.compression for _, header in iter_headers(log_bytes(folder_of(cluster, 1, topic)))
    }
    assert stored == {STORED[name]}

    reader = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < len(expected):
        messages = reader.consume(len(expected) - len(found), 20)
        assert messages
        found += [message.value() for message in messages]
    reader.close()
    assert found == expected
    with_python_reader = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=10_000)
    with_python_reader.assign([KafkaTopicPartition(topic, 0)])
    with_python_reader.seek_to_beginning()
    read = [next(with_python_reader).value for _ in expected]
    with_python_reader.close()
    assert read == expected
