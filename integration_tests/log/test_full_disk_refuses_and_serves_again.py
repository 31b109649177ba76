"""R-LOG8: a log dir filled to the last byte means typed errors, no crash, and service again
when there is room."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from integration_tests.log.small_disk import MIB, SETTINGS, fill, small_disk
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until

RECORD_BYTES = 64 << 10
RECORDS = 10 * MIB // RECORD_BYTES
"""More than fits beside the ballast and the reserve, less than fits without the ballast."""


def test_producers_are_held_up_by_a_full_disk_and_lose_nothing(tmp_path):
    data = tmp_path / "cluster" / "broker-1" / "data"
    with (
        small_disk(data) as is_small,
        running_cluster(tmp_path / "cluster", brokers=1, settings=SETTINGS) as cluster,
    ):
        create_topic(cluster, "full", replication_factor=1)
        pid = cluster.state.brokers[0].pid
        make_room = fill(cluster, data, is_small=is_small)
        acknowledged: list[int] = []
        errors: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": "true",
                "message.timeout.ms": 120_000,
                "retry.backoff.max.ms": 300,
                "log_level": 0,
            }
        )

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                errors.append(str(error))
            else:
                acknowledged.append(message.offset())  # type: ignore[attr-defined]

        for number in range(RECORDS):
            value = b"%08d" % number + bytes(RECORD_BYTES - 8)
            producer.produce("full", value, partition=0, on_delivery=on_delivery)

        def stands_still() -> bool:
            before = len(acknowledged)
            producer.poll(1.0)
            return 0 < before == len(acknowledged)

        wait_until(stands_still, "the disk is full")
        assert len(acknowledged) < RECORDS
        assert errors == []
        make_room()
        assert producer.flush(120) == 0
        assert errors == []
        assert sorted(acknowledged) == list(range(RECORDS))
        assert cluster.state.brokers[0].pid == pid

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "r",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("full", 0, OFFSET_BEGINNING)])
        numbers: list[int] = []
        while len(numbers) < RECORDS:
            messages = consumer.consume(RECORDS - len(numbers), timeout=60)
            assert messages, f"reading stopped at {len(numbers)} of {RECORDS}"
            numbers += [int((message.value() or b"")[:8]) for message in messages]
        consumer.close()
        assert numbers == list(range(RECORDS))
