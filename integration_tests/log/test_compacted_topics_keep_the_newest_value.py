"""R-LOG10: a compacted topic is read by foreign clients while and after it is compacted."""

import random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from integration_tests.support.cluster_support import create_topic, wait_until
from storage_engine.client import Producer as OwnProducer
from storage_engine.client import RefusedRecordsError
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.sampling import in_full

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}
KEYS = 40
ROUNDS = 30


def write(cluster, topic, codec):
    """Every key once a round, one of them deleted at last; all records as (offset, key, value)."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
        }
    )
    written = []
    generator = random.Random(0)  # nothing that compresses into one segment

    def on_delivery(error, message):
        assert error is None
        written.append((message.offset(), message.key(), message.value()))

    for number in range(ROUNDS):
        for key in range(KEYS):
            is_last = number == ROUNDS - 1 and key == 7
            producer.produce(
                topic,
                key=b"key-%d" % key,
                value=None if is_last else b"%d-" % number + generator.randbytes(100),
                partition=0,
                on_delivery=on_delivery,
            )
        producer.flush(120)
    assert len(written) == KEYS * ROUNDS
    return sorted(written)


def read_by_confluent(cluster, topic):
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    found: list[tuple[int | None, bytes | None, bytes | None]] = []
    while not found or found[-1][0] != end - 1:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def read_by_kafka_python(cluster, topic):
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","), consumer_timeout_ms=30_000
    )
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    end = consumer.end_offsets([partition])[partition]
    found = []
    for record in consumer:
        found.append((record.offset, record.key, record.value))
        if record.offset == end - 1:
            break
    consumer.close()
    return found


def newest(records):
    return {key: (offset, value) for offset, key, value in records}


def stored_records(cluster, topic):
    """How many records each broker has on disk; none while a pass replaces what is looked at."""
    counts = []
    try:
        for folder in sorted(cluster.directory.glob(f"broker-*/data/{topic}-0")):
            files = list(folder.iterdir())
            if any(path.suffix == ".swap" for path in files):
                # What it replaces has no name any more, and is read yet.
                return []
            logs = [path.read_bytes() for path in files if path.suffix == ".log"]
            headers = [header for data in logs for _, header in iter_headers(data)]
            counts.append(sum(header.records_count for header in headers))
    except FileNotFoundError:
        return []
    return counts


@pytest.mark.parametrize("codec", [pytest.param("none", marks=in_full), "zstd"])
def test_the_newest_value_of_every_key_is_read_at_its_offset(cluster, codec):
    topic = f"latest-{codec}"
    create_topic(cluster, topic, config=TOPIC_CONFIG)
    written = write(cluster, topic, codec)
    assert newest(read_by_confluent(cluster, topic)) == newest(written)

    def all_compacted():
        counts = stored_records(cluster, topic)
        return len(counts) == 3 and max(counts) < len(written) / 2

    wait_until(all_compacted, "leader and followers have compacted their logs")
    for read in (read_by_confluent, read_by_kafka_python):
        found = read(cluster, topic)
        assert set(found) <= set(written)
        assert newest(found) == newest(written)
        assert len(found) < len(written) / 2

    for broker_id in (1, 2, 3):
        cluster.stop_broker(broker_id)
        cluster.start_broker(broker_id)
    assert newest(read_by_confluent(cluster, topic)) == newest(written)


def test_a_record_without_a_key_is_refused_by_its_code(cluster):
    create_topic(cluster, "keyed", config=TOPIC_CONFIG)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    errors = []
    producer.produce("keyed", value=b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(120)
    assert [error.name() for error in errors] == ["INVALID_RECORD"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("count", [30, 100])
def test_of_a_batch_only_the_records_without_a_key_are_called_invalid(cluster, codec, count):
    topic = f"keyed-{codec}-{count}"
    create_topic(cluster, topic, config=TOPIC_CONFIG)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 60_000,
            "compression.type": codec,
        }
    )
    names = {}
    for number in range(count):
        producer.produce(
            topic,
            value=b"v",
            key=b"k%d" % number if number % 10 else None,
            partition=0,
            on_delivery=lambda error, _, at=number: names.update({at: error.name()}),
        )
    producer.flush(120)
    assert names == {
        number: "_INVALID_DIFFERENT_RECORD" if number % 10 else "INVALID_RECORD"
        for number in range(count)
    }
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 0)
    consumer.close()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_records_that_our_producer_had_right_are_accepted_without_the_others(cluster, codec):
    topic = f"sent-again-{codec}"
    create_topic(cluster, topic, config=TOPIC_CONFIG)
    keys = [b"k%d" % number if number % 10 else None for number in range(100)]
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "linger.ms": 60_000,
        "compression.type": codec,
    }
    with OwnProducer(config) as producer:
        futures = [producer.send(topic, b"v", key=key, partition=0) for key in keys]
        with pytest.raises(RefusedRecordsError, match="10 of 100 records"):
            producer.flush()
        errors = [future.exception(120) for future in futures]
        assert {str(errors[number]) for number in range(0, 100, 10)} == {
            f"{topic}-0: the record has no key: every record of a compacted topic must have one"
        }
        right = [
            key
            for key, error in zip(keys, errors, strict=True)
            if isinstance(error, RefusedRecordsError)
        ]
        assert right == [key for key in keys if key is not None]
        again = [producer.send(topic, b"v", key=key, partition=0) for key in right]
        producer.flush()
        assert [future.result(120).offset for future in again] == list(range(len(right)))
