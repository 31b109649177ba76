"""All brokers are killed and come back without the log of the coordinators, as after a loss of
power that has taken it: what was open then is aborted, and readers of committed records go on."""

import shutil

import pytest
from confluent_kafka import KafkaException

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    running_cluster,
    wait_for_isr,
)
from integration_tests.support.transactional_clients import Confluent, Reader

TOPIC = "open"
OPEN_FOR_MS = 900_000
"""Nobody waits for that long."""
OFTEN = (("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),)


def test_a_transaction_that_no_coordinator_has_any_more_is_aborted(tmp_path):
    with running_cluster(tmp_path / "cluster", settings=OFTEN) as cluster:
        create_topic(cluster, TOPIC)
        client = admin(cluster)
        lost = Confluent(cluster.bootstrap_servers, "lost", OPEN_FOR_MS)
        lost.begin()
        lost.write(TOPIC, 0, b"left open")
        brokers = [broker.id for broker in cluster.state.brokers]
        for broker in brokers:
            cluster.kill_broker(broker)
        folders = list(cluster.directory.glob("**/__transaction_state-*"))
        assert folders
        for folder in folders:
            shutil.rmtree(folder)
        for broker in brokers:
            cluster.start_broker(broker)
        wait_for_isr(client, TOPIC, len(brokers))
        behind = Confluent(cluster.bootstrap_servers, "another")
        behind.begin()
        behind.write(TOPIC, 0, b"behind it")
        behind.commit()
        with Reader(cluster.bootstrap_servers, TOPIC, 1, "read_committed") as reader:
            reader.wait_for({0: [b"behind it"]})
        with pytest.raises(KafkaException):
            lost.commit()
