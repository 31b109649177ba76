"""R-CTL2, R-CTL5: a controller that is killed in the middle of its elections leaves some partitions
with new leaders and others without; the next controller holds those that are missing."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    not_in_sync,
    running_cluster,
    wait_until,
)
from storage_engine.core.control.controller import ELECTIONS_PER_TURN
from storage_engine.tests.sampling import in_full

TOPIC = "many"
PARTITIONS = 600
"""Several turns of elections, with time enough between the first and the last for a signal."""


class Writer(threading.Thread):
    """Writes to one partition after the other, and remembers what was acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, set[bytes]] = defaultdict(set)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._count = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._over.is_set():
            self.write_to_all()

    def write_to_all(self) -> None:
        for partition in range(PARTITIONS):
            self._count += 1
            value = b"%d" % self._count
            self._produce(partition, value)
            self._producer.poll(0)
            time.sleep(0.001)

    def _produce(self, partition: int, value: bytes) -> None:
        """Waits where the broker that the client asks has not heard of all partitions yet."""

        def is_produced() -> bool:
            noting = self._noting(partition, value)
            try:
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=noting)
            except KafkaException as error:
                assert error.args[0].code() == KafkaError._UNKNOWN_PARTITION, error
                self._producer.list_topics(TOPIC, timeout=30)
                return False
            return True

        wait_until(is_produced, "the producer knows all partitions")

    def _noting(self, partition: int, value: bytes) -> Callable[..., None]:
        def note(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged[partition].add(value)
            else:
                self.failures.append(f"{partition}: {error}")

        return note

    def finish(self) -> None:
        """Returns when all that was written is acknowledged, or has failed."""
        self._over.set()
        self.join(60)
        assert self._producer.flush(120) == 0


def read_all(servers: str) -> dict[int, list[bytes]]:
    """All values of each partition, in their order."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reads-all", "enable.auto.commit": False}
    )
    try:
        everything = [TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)]
        ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 30)[1]
                for p in range(PARTITIONS)}  # fmt: skip
        consumer.assign(everything)
        found: dict[int, list[bytes]] = defaultdict(list)
        left = sum(ends.values())
        end_s = time.monotonic() + 120
        while left and time.monotonic() < end_s:
            for message in consumer.consume(10_000, timeout=1):
                assert message.error() is None
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert isinstance(value, bytes)
                found[partition].append(value)
                left -= 1
        assert not left, "all that is there can be read"
        return found
    finally:
        consumer.close()


def elections_in(log: Path) -> int:
    return log.read_bytes().count(b"elect partition=many-")


@in_full
def test_a_controller_killed_amid_its_elections_leaves_nobody_without_a_leader(tmp_path):
    with running_cluster(tmp_path) as cluster:
        client = admin(cluster)
        create_topic(cluster, TOPIC, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
        wait_until(lambda: not not_in_sync(client, {TOPIC: (PARTITIONS, 3)}), "all are in sync")
        writer = Writer(cluster.bootstrap_servers)
        writer.write_to_all()
        writer.start()

        controller = client.list_topics(timeout=60).controller_id
        dead = next(broker for broker in (1, 2, 3) if broker != controller)
        (log,) = tmp_path.glob(f"**/*{controller}/**/state-change.log")
        before = elections_in(log)
        cluster.kill_broker(dead)
        end_s = time.monotonic() + 60
        while elections_in(log) <= before + ELECTIONS_PER_TURN and time.monotonic() < end_s:
            time.sleep(0.0005)
        cluster.kill_broker(controller)
        held = elections_in(log) - before
        assert ELECTIONS_PER_TURN < held < PARTITIONS, "it was killed in the middle"

        (last,) = {1, 2, 3} - {controller, dead}

        def led_by_the_last() -> bool:
            partitions = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
            return {p.leader for p in partitions.values()} == {last}

        wait_until(led_by_the_last, "every partition has the living broker for its leader")
        for broker in (dead, controller):
            assert cluster.start_broker(broker)
        writer.finish()
        assert writer.failures == []
        wait_until(lambda: not not_in_sync(client, {TOPIC: (PARTITIONS, 3)}), "all are in sync")
        found = read_all(cluster.bootstrap_servers)
        assert {p: set(found[p]) for p in range(PARTITIONS)} == writer.acknowledged
        assert all(len(set(values)) == len(values) for values in found.values())
