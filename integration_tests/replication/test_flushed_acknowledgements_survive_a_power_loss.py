"""R-LOG12: with `flush.before.ack`, what was acknowledged is on the disk, by a disk that really
forgets the rest; a topic without it shows that the disk does.
"""

import threading

from confluent_kafka import KafkaException, Producer

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_until,
)
from integration_tests.support.loop_disk import start_with_log_dirs
from integration_tests.support.stored_logs import log_bytes
from storage_engine.protocol.records.record_decoder import decode_batches

TOPICS = {"durable": {"flush.before.ack": "true"}, "quick": {}}
ACKNOWLEDGED = 300
"""Records of each topic, before the power goes."""

MIN_FREE = (("log.dir.min.free.bytes", "4194304"),)


def test_what_was_acknowledged_is_on_the_disk_when_its_power_goes(tmp_path, disk):
    acknowledged: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    with running_cluster(tmp_path / "cluster", brokers=1, settings=MIN_FREE) as cluster:
        cluster.stop_broker(1)
        start_with_log_dirs(cluster, 1, disk.path)
        client = admin(cluster)

        def serves() -> bool:
            try:
                return bool(client.list_topics(timeout=5).brokers)
            except KafkaException:
                return False

        wait_until(serves, "broker 1 is back")
        for topic, config in TOPICS.items():
            create_topic(cluster, topic, replication_factor=1, config=config)
            leader_of(client, topic)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
        )
        stop = threading.Event()

        def delivered(error: object, message: object) -> None:
            if error is None:
                number = int(message.value())  # type: ignore[attr-defined]
                acknowledged[message.topic()].append(number)  # type: ignore[attr-defined]

        def run() -> None:
            number = 0
            while not stop.wait(0.002):
                for topic in TOPICS:
                    producer.produce(topic, b"%d" % number, partition=0, on_delivery=delivered)
                number += 1
                producer.poll(0)
            producer.poll(1)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        wait_until(
            lambda: min(map(len, acknowledged.values())) >= ACKNOWLEDGED, "records are acknowledged"
        )
        # Of the sync that is under way when the power goes, the disk says nothing: see LoopDisk.
        promised = {topic: list(numbers) for topic, numbers in acknowledged.items()}
        disk.fail()
        cluster.kill_broker(1)
        stop.set()
        thread.join(60)
        producer.purge()
        disk.repair()
        start_with_log_dirs(cluster, 1, disk.path)
        for topic in TOPICS:
            leader_of(client, topic)
        cluster.down()
    stored = {
        topic: decode_batches(log_bytes(disk.path / f"{topic}-0")).values.to_pylist()
        for topic in TOPICS
    }
    lost = {
        topic: {b"%d" % number for number in promised[topic]} - set(stored[topic])
        for topic in TOPICS
    }
    assert lost["durable"] == set()
    assert lost["quick"], "the disk kept what it was not told to keep: this shows nothing"
