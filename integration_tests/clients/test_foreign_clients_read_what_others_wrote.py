"""librdkafka and kafka-python write and read each other's records through our brokers, with every
compression, byte for byte, headers and nulls included.
"""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from integration_tests.support.cluster_support import create_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

RECORDS: list[Record] = [
    (b"key", b"value", ()),
    (None, b"no key", (("one", b"1"),)),
    (b"tombstone", None, ()),
    (b"", b"", (("empty", b""), ("null", None), ("empty", b"again"))),
    (b"binary \x00\xff", bytes(range(256)), (("umlaut \u00fc", b"\xff\x00"),)),
    (b"large", b"0123456789" * 20_000, ()),
    *((b"k%d" % i, b"v%d" % i * (i % 7), (("i", b"%d" % i),)) for i in range(500)),
]


# kafka-python can't write a header without a value.
WITHOUT_NULL_HEADERS: list[Record] = [
    (key, value, tuple((name, content or b"") for name, content in headers))
    for key, value, headers in RECORDS
]


def _by_librdkafka(servers: str, topic: str, codec: str) -> None:
    failures = []
    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "compression.type": codec, "linger.ms": 20}
    )
    for key, value, headers in RECORDS:
        producer.produce(
            topic,
            key=key,
            value=value,
            headers=list(headers),
            partition=0,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failures == []


def _by_kafka_python(servers: str, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
    )
    sent = [
        producer.send(topic, key=key, value=value, headers=list(headers), partition=0)
        for key, value, headers in WITHOUT_NULL_HEADERS
    ]
    producer.flush(30)
    assert [future.get(30).offset for future in sent] == list(range(len(RECORDS)))
    producer.close()


def _read_by_librdkafka(servers: str, topic: str) -> list[Record]:
    settings = {"group.id": "readers", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    records: list[Record] = []
    while len(records) < len(RECORDS):
        messages = consumer.consume(len(RECORDS) - len(records), timeout=60)
        assert messages, f"only {len(records)} records came"
        for message in messages:
            assert message.error() is None
            assert message.offset() == len(records)
            records.append((message.key(), message.value(), tuple(message.headers() or ())))
    consumer.close()
    return records


def _read_by_kafka_python(servers: str, topic: str) -> list[Record]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    records: list[Record] = []
    for message in consumer:
        assert message.offset == len(records)
        records.append((message.key, message.value, tuple(message.headers)))
        if len(records) == len(RECORDS):
            break
    consumer.close()
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_librdkafka_wrote(cluster, codec):
    topic = f"librdkafka-{codec}"
    create_topic(cluster, topic)
    _by_librdkafka(cluster.bootstrap_servers, topic, codec)
    assert _read_by_kafka_python(cluster.bootstrap_servers, topic) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_kafka_python_wrote(cluster, codec):
    topic = f"kafka-python-{codec}"
    create_topic(cluster, topic)
    _by_kafka_python(cluster.bootstrap_servers, topic, codec)
    assert _read_by_librdkafka(cluster.bootstrap_servers, topic) == WITHOUT_NULL_HEADERS
