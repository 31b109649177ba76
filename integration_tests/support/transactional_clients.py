"""Transactional producers that we did not write, with one face, and readers beside them."""

from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from integration_tests.support.background import Background
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import wait_until

WAIT_S = 60.0


class TransactionalProducer(Protocol):
    """As much of one as the tests need."""

    def begin(self) -> None: ...

    def write(self, topic: str, partition: int, value: bytes) -> None:
        """Returns when it is acknowledged."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    """librdkafka's."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, timeout_ms: int = 60_000):
        self._producer = Producer(
            {
                **settings_for(bootstrap_servers),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self) -> None:
        self._persist(self._producer.commit_transaction)

    def abort(self) -> None:
        self._persist(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()

    def _persist(self, act: Any) -> None:
        """As its documentation says: call it again when the error is retriable."""
        while True:
            try:
                act(WAIT_S)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return


class KafkaPython:
    """kafka-python's."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, timeout_ms: int = 60_000):
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)


class Reader(Background):
    """Reads all partitions of a topic while others write."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, isolation: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                **settings_for(bootstrap_servers),
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self.seen: dict[int, list[bytes]] = {p: [] for p in range(partitions)}
        """By partition, in the order of their offsets."""

    def end(self) -> None:
        super().end()
        self._consumer.close()

    def wait_for(self, expected: Mapping[int, list[bytes]]) -> None:
        """Until exactly these have been read; AssertionError for anything else."""

        def there() -> bool:
            self.check()
            for partition, values in expected.items():
                seen = self.seen[partition]
                assert seen == values[: len(seen)], f"partition {partition}"
            return all(len(self.seen[p]) == len(values) for p, values in expected.items())

        wait_until(there, "everything is read")

    def _work(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                value, partition = message.value(), message.partition()
                assert isinstance(value, bytes) and partition is not None
                self.seen[partition].append(value)
