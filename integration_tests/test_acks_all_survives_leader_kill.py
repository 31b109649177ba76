"""R-REP3, R-CTL2: what was acknowledged with acks=all is there after its leader was killed, in
order and once.
"""

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from integration_tests.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)

KILLS = 5


class SteadyProducer:
    """librdkafka with its retries, acks=all and idempotent, numbered values, until told to stop."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": "true",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self.acknowledged: dict[int, int] = {}
        """Number -> offset."""
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, value=b"%d" % number, partition=0, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.005)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[int(message.value())] = message.offset()  # type: ignore[attr-defined]

    def finish(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(30)
            assert self._producer.flush(120) == 0


def read_all(servers: str, topic: str) -> list[tuple[int, int]]:
    """(offset, number) of every record below the end at the time of the call."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "checker", "log_level": 0})
    partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
    _low, high = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    records: list[tuple[int, int]] = []
    while not records or records[-1][0] < high - 1:
        messages = consumer.consume(10_000, timeout=10)
        assert messages, f"reading stopped at {len(records)} of {high}"
        for message in messages:
            assert message.error() is None
            records.append((message.offset(), int(message.value())))
    consumer.close()
    return records


def test_every_acknowledged_record_survives_five_kills_of_the_leader(tmp_path):
    with running_cluster(tmp_path) as cluster:
        topic = "steady"
        create_topic(cluster, topic, config={"min.insync.replicas": "2"})
        client = admin(cluster)
        with SteadyProducer(cluster.bootstrap_servers, topic) as producer:
            for _ in range(KILLS):
                before = len(producer.acknowledged)
                wait_until(
                    lambda before=before: len(producer.acknowledged) > before + 500,
                    "records are acknowledged before the kill",
                )
                leader = leader_of(client, topic)
                cluster.kill_broker(leader)
                killed_at = len(producer.acknowledged)
                wait_until(
                    lambda killed_at=killed_at: len(producer.acknowledged) > killed_at + 500,
                    "records are acknowledged by the next leader",
                )
                assert cluster.start_broker(leader)
                wait_for_isr(client, topic, 3)
            producer.finish()

        assert producer.failures == []
        records = read_all(cluster.bootstrap_servers, topic)
        assert [offset for offset, _ in records] == list(range(len(records)))
        assert [number for _, number in records] == list(range(len(records)))
        at_offset = dict(records)
        assert len(producer.acknowledged) == len(records)
        for number, offset in producer.acknowledged.items():
            assert at_offset[offset] == number
