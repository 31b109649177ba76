"""R-REP7, with real processes: a broker whose machine lost its power, and with it
the end of its log, comes back first. It does not lead, though it was in the last ISR; the partition
waits for the other member, whose process was only killed, and nothing acknowledged is missing.
"""

import json
import os
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from kazoo.client import KazooClient

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import succeed
from integration_tests.support.steady_producer import read_numbers
from integration_tests.support.stored_logs import log_bytes
from storage_engine.protocol.records.record_batch import iter_headers

TOPIC = "kept"
RECORDS = 200
SETTINGS = (("broker.death.proof", "none"),)
"""As between machines: the brokers of one see each other die, and write another ISR at once."""


def lose_power(data: Path) -> None:
    """As a restart of the machine leaves a folder: another boot id, half of the log gone."""
    (data / ".boot-id").write_text("ffffffff-0000-0000-0000-000000000000\n")
    batches = list(iter_headers(log_bytes(data / f"{TOPIC}-0")))
    position, _ = batches[len(batches) // 2]
    (segment,) = (data / f"{TOPIC}-0").glob("*.log")
    os.truncate(segment, position)


def status(directory: Path) -> dict:
    return json.loads(succeed("status", "--json", "--dir", directory))


def wait_until_sessions_have_expired(zookeeper: str) -> None:
    """With no broker alive nobody acts on it: the last ISR stays as it was written."""
    client = KazooClient(zookeeper)
    client.start()
    try:
        wait_until(lambda: not client.get_children("/brokers/ids"), "all sessions have expired")
    finally:
        client.stop()
        client.close()


def test_a_partition_waits_for_the_member_of_its_last_isr_that_kept_its_tail(tmp_path):
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        create_topic(cluster, TOPIC, config={"min.insync.replicas": "2"})
        client = admin(cluster)
        wait_for_isr(client, TOPIC, 3)
        kept = leader_of(client, TOPIC)
        lost, third = (broker for broker in (1, 2, 3) if broker != kept)
        cluster.kill_broker(third)
        wait_for_isr(client, TOPIC, 2)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
        )
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                refused.append(error)

        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)
            producer.flush(60)  # a batch of its own
        assert not refused
        # Both within one session's timeout, so that nobody writes another ISR.
        cluster.kill_broker(lost)
        cluster.kill_broker(kept)
        lose_power(tmp_path / f"broker-{lost}" / "data")
        # A broker that came back sooner would take the other for alive, and the suspect out of
        # the ISR, which is as safe; here the suspect is in the ISR and alone.
        wait_until_sessions_have_expired(cluster.state.zookeeper)

        cluster.start_broker(lost)
        cluster.start_broker(third)

        def leaderless() -> bool:
            found = partition_metadata(client, TOPIC)
            return found is not None and found.leader == -1 and set(found.isrs) == {kept, lost}

        wait_until(leaderless, "the partition has no leader")
        found = partition_metadata(client, TOPIC)
        assert found.error.code() == KafkaError.LEADER_NOT_AVAILABLE
        # Whom the command asks may hear of it a moment after whom the client has asked.
        (offline,) = wait_until(lambda: status(tmp_path)["offline"], "that is told")
        assert (offline["leader"], offline["why"]) == (
            None,
            f"waits for broker {kept} of the last ISR; the end of the log may be lost, or the log"
            f" dir failed, on broker {lost}",
        )

        cluster.start_broker(kept)
        assert leader_of(client, TOPIC) == kept
        expected = [(number, number) for number in range(RECORDS)]
        assert read_numbers(cluster.bootstrap_servers, TOPIC) == expected
        wait_for_isr(client, TOPIC, 3)
        wait_until(lambda: not status(tmp_path)["offline"], "that is told no more")
