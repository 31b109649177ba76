"""Programs with Confluent's serializers write Avro into typed topics and read it from them, while
leaders and the registry are killed, the schema changes, and others send ids that nobody gave. Spark
beside them: `integration_tests/avro/test_spark_beside_avro_clients.py`."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from integration_tests.registry.registries import RegistryUnderFire
from integration_tests.support.background import Background
from integration_tests.support.cluster_support import admin, leader_of, wait_for_isr, wait_until
from integration_tests.typed_topics.avro_clients import (
    RIDES,
    SCHEMAS,
    AvroValues,
    Outcomes,
    consumed,
    create_avro,
    framed,
    producer,
    registry_process,
    row,
    wait_for_subject,
)
from integration_tests.typed_topics.test_foreign_clients_see_json import evolve
from storage_engine.tests.sampling import ALL_FAULTS

UNKNOWN = 1_000_000
ATTACKS = 10_000 if ALL_FAULTS else 2_000


@pytest.fixture(scope="module")
def registry(cluster, tmp_path_factory) -> Iterator[RegistryUnderFire]:
    with registry_process(cluster, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def values(cluster, registry, topic) -> AvroValues:
    create_avro(cluster, topic, RIDES)
    wait_for_subject(registry, topic)
    return AvroValues(registry, topic)


class Writer(Background):
    """An idempotent producer of numbered rows, until it is told to stop."""

    def __init__(self, cluster: Any, topic: str, values: AvroValues, **more: Any) -> None:
        super().__init__()
        self._topic = topic
        self._values = values
        self._more = more
        self._producer = producer(cluster, **{"compression.type": "lz4"})
        self.outcomes = Outcomes()
        self.count = 0

    @property
    def acknowledged(self) -> int:
        return len(self.outcomes.offsets)

    def _work(self) -> None:
        while not self._stop.is_set():
            value = self._values.written({**row(self.count), **self._more})
            try:
                self._producer.produce(
                    self._topic, value, on_delivery=self.outcomes.note, partition=0
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            self.count += 1
            self._producer.poll(0)
            if self.count % 20 == 0:
                time.sleep(0.01)

    def end(self) -> None:
        super().end()
        assert self._producer.flush(120) == 0

    def more(self, count: int, what: str) -> None:
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + count, what)


def test_killed_leaders_and_registries_lose_and_double_nothing(cluster, registry, values, topic):
    """The leader of the topic, that of `_schemas`, and the registry: brokers go on without it."""
    client = admin(cluster)
    wait_for_isr(client, topic, 3)
    wait_for_isr(client, SCHEMAS, 3)
    with Writer(cluster, topic, values) as writer:
        writer.more(300, "rows are written")
        for victim in (topic, SCHEMAS):
            leader = leader_of(client, victim)
            cluster.kill_broker(leader)
            writer.more(300, "another leads")
            cluster.start_broker(leader)
            for each in (topic, SCHEMAS):
                wait_for_isr(client, each, 3)
        registry.kill()
        writer.more(300, "rows without a registry")
        leader = leader_of(client, topic)
        cluster.kill_broker(leader)
        writer.more(300, "a leader that has to read the schemas anew")
        cluster.start_broker(leader)
        registry.start()
        wait_for_isr(client, topic, 3)
    assert not writer.outcomes.failures
    assert sorted(writer.outcomes.offsets) == list(range(writer.count))
    messages = consumed(cluster, topic, writer.count)
    assert [(values.read(m.value())["id"], m.offset()) for m in messages] == [
        (n, n) for n in range(writer.count)
    ]


def test_old_and_new_producers_go_on_when_the_topic_gets_a_column(cluster, registry, values, topic):
    with Writer(cluster, topic, values) as old:
        old.more(100, "rows of the first version")
        evolve(admin(cluster), topic)
        new_id = wait_for_subject(registry, topic, 2)
        with Writer(cluster, topic, AvroValues(registry, topic), more=5) as new:
            new.more(200, "rows of the second version")
            old.more(200, "rows of the first version after it")
    assert not old.outcomes.failures and not new.outcomes.failures
    count = old.count + new.count
    messages = consumed(cluster, topic, count)
    assert {int.from_bytes(m.value()[1:5]) for m in messages} == {new_id}
    rows = [values.read(m.value()) for m in messages]
    for more, written in ((None, old.count), (5, new.count)):
        ids = [each["id"] for each in rows if each["more"] == more]
        assert ids == list(range(written))


def test_an_id_that_nobody_gave_is_refused_and_delays_no_other_producer(cluster, values, topic):
    """One client sends records of ids that nobody gave; another's rows take no longer for it."""
    body = values.written(row(1))[5:]
    writer = producer(cluster, **{"enable.idempotence": False, "linger.ms": 0})
    refused = Outcomes()

    def latency_ms(numbers: range) -> float:
        own = producer(cluster, **{"linger.ms": 0})
        own.produce(topic, values.written(row(0)))
        assert own.flush(60) == 0
        taken = []
        for number in numbers:
            begun = time.monotonic()
            own.produce(topic, values.written(row(number)))
            assert own.flush(60) == 0
            taken.append(1000 * (time.monotonic() - begun))
        return sorted(taken)[len(taken) // 2]

    writer.produce(topic, framed(UNKNOWN, body), on_delivery=refused.note)
    begun = time.monotonic()
    assert writer.flush(60) == 0
    assert [each.code() for each in refused.failures] == [KafkaError.INVALID_RECORD]
    assert time.monotonic() - begun < 30
    calm_ms = latency_ms(range(50))

    class Attack(Background):
        def _work(self) -> None:
            for number in range(1, ATTACKS):
                if self._stop.is_set():
                    return
                value = framed(UNKNOWN + number, body)
                writer.produce(topic, value, on_delivery=refused.note)
                writer.flush(60) if number % 10 == 0 else writer.poll(0)

    with Attack():
        attacked_ms = latency_ms(range(50, 100))
    assert writer.flush(60) == 0
    assert not refused.offsets
    assert {each.code() for each in refused.failures} == {KafkaError.INVALID_RECORD}
    # On a machine that does all of this at once.
    assert attacked_ms < 10 * calm_ms + 100, (calm_ms, attacked_ms)
    assert len(consumed(cluster, topic, 102)) == 102
