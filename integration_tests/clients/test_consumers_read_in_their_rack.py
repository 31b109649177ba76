"""KIP-392: a consumer with `client.rack` gets its bytes from the follower in that rack; when that
follower dies the leader serves it, and when it is in sync again the follower does. Nothing is
skipped, nothing comes twice.
"""

import json
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "racks"
VALUE_BYTES = 10_000
ROUND = 100
SETTINGS = (("replica.selector.class", "RackAwareReplicaSelector"),)


def _set_racks(cluster: LocalCluster) -> None:
    """Every broker in a rack of its own; the cluster starts again with it."""
    cluster.down()
    for entry in cluster.state.brokers:
        with (cluster.directory / entry.config).open("a") as config:
            config.write(f"broker.rack=rack-{entry.id}\n")
    cluster.up(UpRequest())


class Reader:
    """A consumer in a rack, which notes what it reads and whom it reads from."""

    def __init__(self, servers: str, rack: str) -> None:
        self.read = 0
        self._statistics: dict[str, Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "client.rack": rack,
                "statistics.interval.ms": 100,
                "stats_cb": self._take,
                "fetch.error.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])

    def _take(self, text: str) -> None:
        self._statistics = json.loads(text)

    def poll(self) -> None:
        for message in self._consumer.consume(50, timeout=0.1):
            if message.error() is not None:
                continue
            assert message.offset() == self.read
            value = message.value()
            assert value is not None and value.startswith(b"%08d" % self.read)
            self.read += 1

    def read_up_to(self, end: int) -> None:
        def done() -> bool:
            self.poll()
            return self.read >= end

        wait_until(done, f"{end} are read")
        assert self.read == end

    def received(self) -> dict[int, int]:
        """Bytes from each broker so far."""
        brokers = self._statistics.get("brokers", {}).values()
        return {each["nodeid"]: each["rxbytes"] for each in brokers}

    def reads_from(self, broker: int) -> bool:
        self.poll()
        topic = self._statistics.get("topics", {}).get(TOPIC, {"partitions": {}})
        return bool(topic["partitions"].get("0", {}).get("broker") == broker)

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_reads_from_the_follower_in_its_rack(tmp_path):
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        _set_racks(cluster)
        client = admin(cluster)
        create_topic(cluster, TOPIC)
        leader = leader_of(client, TOPIC)
        follower = leader % 3 + 1
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        written = 0

        def write() -> int:
            nonlocal written
            for number in range(written, written + ROUND):
                value = b"%08d" % number + bytes(VALUE_BYTES)
                producer.produce(TOPIC, value, partition=0)
            assert producer.flush(60) == 0
            written += ROUND
            return written

        write()
        wait_for_isr(client, TOPIC, 3)
        reader = Reader(cluster.bootstrap_servers, f"rack-{follower}")
        reader.read_up_to(written)
        wait_until(lambda: reader.reads_from(follower), "the follower is read from")
        before = reader.received()
        reader.read_up_to(write())
        wait_until(
            lambda: (
                reader.reads_from(follower)
                and reader.received()[follower] - before[follower] > ROUND * VALUE_BYTES
            ),
            "the bytes came from the follower",
        )
        assert reader.received()[leader] - before[leader] < ROUND * VALUE_BYTES / 10

        cluster.kill_broker(follower)
        reader.read_up_to(write())
        wait_until(lambda: reader.reads_from(leader), "the leader is read from")
        cluster.start_broker(follower)
        wait_for_isr(client, TOPIC, 3)
        reader.read_up_to(write())
        wait_until(lambda: reader.reads_from(follower), "the follower is read from again")
        reader.read_up_to(write())
        reader.close()
