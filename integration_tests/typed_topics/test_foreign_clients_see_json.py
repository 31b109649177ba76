"""Typed topics as unmodified clients of Kafka use them: JSON in, JSON out, at the same offsets;
through transactions, a leader that is killed, and a schema that changes."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.structs import TopicPartition as PythonPartition

from integration_tests.support.background import Background
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import (
    CLIENT_TIMEOUT_MS,
    admin,
    create_topic,
    leader_of,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.transactional_clients import Confluent, Reader
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema

DDL = "id BIGINT NOT NULL, fare DOUBLE, tag STRING, at TIMESTAMP"
SCHEMA = new_schema(parse_ddl(DDL), ["id"])
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def create_typed(cluster: Any, topic: str, **config: str) -> None:
    settings = {SCHEMA_SETTING: SCHEMA.to_json(), "min.insync.replicas": "2", **config}
    create_topic(cluster, topic, config=settings)


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "fare": number + 0.5,
        "tag": f"tag {number}",
        "at": "2026-01-31T12:00:00.000001Z",
    }


def text(number: int) -> bytes:
    return json.dumps(row(number)).encode()


def compact(number: int) -> bytes:
    """The row as a broker writes it."""
    return json.dumps(row(number), separators=(",", ":")).encode()


def producer(cluster: Any, **more: Any) -> Producer:
    return Producer(
        {**settings_for(cluster.bootstrap_servers), "log_level": 0, "linger.ms": 20, **more}
    )


def consumed(cluster: Any, topic: str, count: int, **more: Any) -> list[Any]:
    """The first records, as librdkafka gives them."""
    consumer = Consumer(
        {
            **settings_for(cluster.bootstrap_servers),
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
            **more,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []

        def poll() -> bool:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
            return len(found) >= count

        wait_until(poll, f"{count} rows of {topic}")
        return found
    finally:
        consumer.close()


def test_what_each_client_writes_all_of_them_read_at_the_same_offsets(cluster):
    create_typed(cluster, "typed-mixed")
    for place, codec in enumerate(CODECS):
        writer = producer(cluster, **{"compression.type": codec})
        for number in range(50 * place, 50 * place + 50):
            key = str(number).encode() if number % 2 else None
            writer.produce("typed-mixed", text(number), key=key, headers=[("h", b"v")])
        assert writer.flush(60) == 0
    first = 50 * len(CODECS)
    python = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","), linger_ms=20)
    sent = [python.send("typed-mixed", text(first + n)) for n in range(50)]
    assert [each.get(30).offset for each in sent] == list(range(first, first + 50))
    python.close()
    count = first + 50
    messages = consumed(cluster, "typed-mixed", count)
    assert [(m.offset(), m.key()) for m in messages] == [(n, str(n).encode()) for n in range(count)]
    assert [json.loads(m.value()) for m in messages] == [row(n) for n in range(count)]
    assert messages[7].headers() == [("h", b"v")]
    reader = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","), consumer_timeout_ms=60_000
    )
    tp = PythonPartition("typed-mixed", 0)
    reader.assign([tp])
    reader.seek(tp, 0)
    found = [next(reader) for _ in range(count)]
    reader.close()
    assert [(m.offset, m.key, m.value) for m in found] == [
        (m.offset(), m.key(), m.value()) for m in messages
    ]
    # Small fetches end within what is converted, and go on there.
    few = consumed(cluster, "typed-mixed", count, **{"max.partition.fetch.bytes": 2000})
    assert [m.offset() for m in few] == list(range(count))


def test_a_record_that_does_not_fit_is_refused_with_its_place_and_others_are_taken(cluster):
    create_typed(cluster, "typed-refused")
    outcomes: list[tuple[int | None, str]] = []

    def note(error: KafkaError | None, _message: Any) -> None:
        outcomes.append((None, "") if error is None else (error.code(), error.str()))

    writer = producer(cluster, **{"retries": 0})
    writer.produce("typed-refused", b'{"id": "seven"}', on_delivery=note)
    assert writer.flush(60) == 0
    writer.produce("typed-refused", text(1), on_delivery=note)
    assert writer.flush(60) == 0
    assert outcomes[0][0] == KafkaError.INVALID_RECORD
    assert outcomes[1] == (None, "")
    python = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","), retries=0)
    with pytest.raises(PythonError):
        python.send("typed-refused", b'{"fare": 1}').get(30)
    python.close()
    assert [m.offset() for m in consumed(cluster, "typed-refused", 1)] == [0]


def test_readers_of_committed_rows_see_whole_transactions_and_nothing_else(cluster):
    create_typed(cluster, "typed-transactions")
    writer = Confluent(cluster.bootstrap_servers, "typed-transactions")
    committed, every = [], []
    for number in range(8):
        writer.begin()
        for n in (2 * number, 2 * number + 1):
            writer.write("typed-transactions", 0, text(n))
            every.append(n)
        if number % 3 == 1:
            writer.abort()
        else:
            writer.commit()
            committed += every[-2:]
    writer.close()
    for isolation, expected in (("read_committed", committed), ("read_uncommitted", every)):
        with Reader(cluster.bootstrap_servers, "typed-transactions", 1, isolation) as reader:
            reader.wait_for({0: [compact(n) for n in expected]})


class Writer(Background):
    """An idempotent producer of numbered rows, until it is told to stop."""

    def __init__(self, cluster: Any, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = producer(
            cluster,
            **{
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": CLIENT_TIMEOUT_MS,
                "socket.timeout.ms": CLIENT_TIMEOUT_MS,
                "compression.type": "lz4",
            },
        )
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    self._topic, text(number), on_delivery=self._noted, partition=0
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            number += 1
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.01)

    def _noted(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[json.loads(message.value())["id"]] = message.offset()

    def end(self) -> None:
        super().end()
        assert self._producer.flush(120) == 0


def test_a_killed_leader_and_a_new_version_of_the_schema_lose_and_double_nothing(cluster):
    topic = "typed-killed"
    create_typed(cluster, topic)
    client = admin(cluster)
    wait_for_isr(client, topic, 3)
    with Writer(cluster, topic) as writer:
        wait_until(lambda: len(writer.acknowledged) > 500, "rows are written")
        leader = leader_of(client, topic)
        cluster.kill_broker(leader)
        before = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > before + 500, "another leads")
        evolve(client, topic)
        before = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > before + 500, "rows of the new version")
        cluster.start_broker(leader)
        wait_for_isr(client, topic, 3)
    assert not writer.failures
    count = len(writer.acknowledged)
    messages = consumed(cluster, topic, count)
    assert [(json.loads(m.value())["id"], m.offset()) for m in messages] == [
        (n, n) for n in range(count)
    ]
    assert writer.acknowledged == {n: n for n in range(count)}
    assert json.loads(messages[0].value()) == {**row(0), "more": None}


def evolve(client: Any, topic: str) -> None:
    evolved: TopicSchema = SCHEMA.evolved(parse_ddl(f"{DDL}, more INT"))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry(SCHEMA_SETTING, evolved.to_json(), incremental_operation=AlterConfigOpType.SET)
    )

    def is_set() -> bool:
        try:
            for future in client.incremental_alter_configs([resource]).values():
                future.result(30)
        except KafkaException as error:
            # librdkafka goes on to wait for a controller that was killed.
            assert error.args[0].code() == KafkaError._TIMED_OUT
            client.list_topics(timeout=10)
            return False
        return True

    wait_until(is_set, "the new version of the schema")
