"""R-CTL1, R-CTL5, R-TOOL5: another broker takes over as controller and finishes what there is to
do; the merged state-change logs tell how."""

import json

from confluent_kafka import KafkaException, Producer

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import succeed


def _metadata(client):
    """None when the client happens to ask the dead broker."""
    try:
        return client.list_topics(timeout=5)
    except KafkaException:
        return None


def _leaders(client):
    topics = _metadata(client).topics
    return {
        (name, each.id): (each.leader, each.isrs)
        for name, topic in topics.items()
        for each in topic.partitions.values()
    }


def test_topics_are_made_and_leaders_elected_after_the_controller_was_killed(tmp_path):
    with running_cluster(tmp_path) as cluster:
        client = admin(cluster)
        create_topic(cluster, "before", partitions=6)
        first = client.list_topics(timeout=60).controller_id
        cluster.kill_broker(first)

        def another_controller() -> bool:
            metadata = _metadata(client)
            return metadata is not None and metadata.controller_id not in (-1, first)

        wait_until(another_controller, "another controller is elected")

        def led_by_the_living() -> bool:
            metadata = _metadata(client)
            if metadata is None:
                return False
            partitions = metadata.topics["before"].partitions
            return all(p.leader not in (-1, first) for p in partitions.values())

        wait_until(led_by_the_living, "every partition has a live leader")
        create_topic(cluster, "after", partitions=3, replication_factor=2)

        outcomes = {}

        def keep_outcome(error, message):
            outcomes[message.topic(), message.partition()] = error

        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for topic, partitions in (("before", 6), ("after", 3)):
            for partition in range(partitions):
                outcomes[topic, partition] = "not acknowledged"
                producer.produce(topic, b"x", partition=partition, on_delivery=keep_outcome)
        producer.flush(60)
        assert all(outcome is None for outcome in outcomes.values()), (outcomes, _leaders(client))

        cluster.start_broker(first)
        for partition in range(6):
            wait_for_isr(client, "before", 3, partition)

        files = sorted(tmp_path.glob("**/state-change.log"))
        assert len(files) == 3
        merged = succeed("merge-state-log", "--json", "--topic", "before", *files)
        changes = [json.loads(line) for line in merged.splitlines()]
        assert [c["time"] for c in changes] == sorted(c["time"] for c in changes)
        assert {c["partition"] for c in changes} == set(range(6))
        elections = [c["broker"] for c in changes if c["change"].startswith("elect ")]
        assert elections[0] == first
        assert elections[-1] != first
