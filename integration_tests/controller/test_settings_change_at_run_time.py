"""R-TOOL1: settings of topics and brokers, changed by Kafka's clients while three brokers run, are
in force on all of them, and stay through restarts and kills.
"""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import KafkaAdminClient

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.settings_support import alter, describe, folder_of, produce, segments
from storage_engine.client.admin.topics import alter_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

BROKERS = (1, 2, 3)
LARGE = [b"x" * 5000]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_every_leader_enforces_a_lowered_limit_and_a_deleted_one_no_more(cluster):
    create_topic(cluster, "limited", partitions=3)
    client = admin(cluster)
    servers = cluster.bootstrap_servers

    def outcomes() -> set[str | None]:
        return {produce(servers, "limited", LARGE, p)[0] for p in range(3)}

    assert {leader_of(client, "limited", p) for p in range(3)} == set(BROKERS)
    assert outcomes() == {None}
    alter(client, "topic", "limited", max_message_bytes="2000")
    wait_until(lambda: outcomes() == {"MSG_SIZE_TOO_LARGE"}, "all leaders refuse")
    alter(client, "topic", "limited", max_message_bytes=None)
    wait_until(lambda: outcomes() == {None}, "all leaders accept")


def test_all_replicas_roll_by_the_new_segment_size(cluster):
    create_topic(cluster, "rolled")
    client = admin(cluster)
    servers = cluster.bootstrap_servers
    produce(servers, "rolled", LARGE * 5)
    folders = [folder_of(cluster, broker, "rolled") for broker in BROKERS]
    assert [len(segments(folder)) for folder in folders] == [1, 1, 1]
    alter(client, "topic", "rolled", segment_bytes="10000")

    def all_roll() -> bool:
        produce(servers, "rolled", LARGE * 4)
        return all(len(segments(folder)) >= 3 for folder in folders)

    wait_until(all_roll, "all replicas have new segments")


def test_old_segments_go_when_retention_is_lowered(cluster):
    create_topic(cluster, "kept", config={"segment.bytes": "10000", "file.delete.delay.ms": "0"})
    client = admin(cluster)
    produce(cluster.bootstrap_servers, "kept", LARGE * 10)
    folders = [folder_of(cluster, broker, "kept") for broker in BROKERS]
    wait_for_isr(client, "kept", 3)
    assert all(segments(folder)[0] == 0 for folder in folders)
    for broker in BROKERS:
        alter(client, "broker", str(broker), log_retention_check_interval_ms="100")
    alter(client, "topic", "kept", retention_ms="100")
    wait_until(lambda: all(segments(folder)[0] > 0 for folder in folders), "old segments go")


def test_a_brokers_own_setting_counts_for_it_alone_and_says_where_it_comes_from(cluster):
    client = admin(cluster)
    alter(client, "broker", "2", log_retention_bytes="123456789")
    alter(client, "broker", "2", log_segment_delete_delay_ms="1000")
    try:
        entries = {broker: describe(client, "broker", str(broker)) for broker in BROKERS}
        values = {broker: entries[broker]["log.retention.bytes"].value for broker in BROKERS}
        assert values == {1: "-1", 2: "123456789", 3: "-1"}
        own = entries[2]["log.retention.bytes"]
        assert (own.source, own.is_read_only) == (2, False)
        assert [(s.value, s.source) for s in own.synonyms.values()][-1] == ("-1", 5)
        assert entries[2]["log.dirs"].is_read_only
        assert entries[2]["log.dirs"].source == 4
    finally:
        alter(client, "broker", "2", log_retention_bytes=None, log_segment_delete_delay_ms=None)
    assert describe(client, "broker", "2")["log.retention.bytes"].source == 5


def test_mistakes_are_told_with_the_nearest_name(cluster):
    create_topic(cluster, "mistaken")
    client = admin(cluster)
    with pytest.raises(KafkaException, match=r"did you mean 'retention\.ms'"):
        alter(client, "topic", "mistaken", retentions_ms="1")
    with pytest.raises(KafkaException, match=r"a whole number, 14 or more"):
        alter(client, "topic", "mistaken", segment_bytes="1")
    with pytest.raises(KafkaException, match=r"can't be changed at run time"):
        alter(client, "broker", "1", log_dirs="/elsewhere")
    assert describe(client, "topic", "mistaken")["segment.bytes"].source == 5


@pytest.mark.parametrize("incremental", [True, False])
def test_another_client_alters_and_describes(cluster, incremental):
    topic = f"foreign-{incremental}"
    create_topic(cluster, topic)
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        change = KafkaPythonResource("TOPIC", topic, {"retention.ms": "777"})
        client.alter_configs([change], incremental=incremental)

        def is_told() -> bool:
            described = client.describe_configs([KafkaPythonResource("TOPIC", topic)])
            return described["topic"][topic]["retention.ms"]["value"] == "777"

        wait_until(is_told, "the broker that is asked has heard of it")
    finally:
        client.close()


def test_settings_survive_the_death_of_all_brokers_and_reach_who_was_away(cluster):
    create_topic(cluster, "lasting", partitions=3)
    client = admin(cluster)
    away = next(b for b in BROKERS if b != leader_of(client, "lasting"))
    cluster.kill_broker(away)
    alter(client, "topic", "lasting", max_message_bytes="2000")
    cluster.start_broker(away)
    for partition in range(3):
        wait_for_isr(client, "lasting", 3, partition)

    def refused_by_all() -> bool:
        servers = cluster.bootstrap_servers
        outcomes = [produce(servers, "lasting", LARGE, p)[0] for p in range(3)]
        return set(outcomes) == {"MSG_SIZE_TOO_LARGE"}

    wait_until(refused_by_all, "all leaders refuse")
    for broker in BROKERS:
        cluster.kill_broker(broker)
    for broker in BROKERS:
        cluster.start_broker(broker)
    for partition in range(3):
        wait_for_isr(client, "lasting", 3, partition)
    leaders = {leader_of(client, "lasting", p) for p in range(3)}
    assert refused_by_all(), leaders
    assert describe(client, "topic", "lasting")["max.message.bytes"].source == 1


def test_a_change_interrupted_by_a_kill_is_in_force_everywhere_or_nowhere(cluster):
    """The broker that is asked dies at another moment each time."""
    create_topic(cluster, "torn", partitions=3)
    client = admin(cluster)
    for number in range(4) if ALL_FAULTS else (1, 2):
        asked = admin(cluster).list_topics(timeout=30).controller_id
        limit = 2000 + 100 * number
        kill = threading.Timer(0.003 * number, cluster.kill_broker, [asked])
        kill.start()
        # Our client asks the controller, and the next one when that has died.
        with Cluster(cluster.bootstrap_servers) as asking:
            alter_topic_configs(asking, "torn", {"max.message.bytes": str(limit)})
        kill.join()

        def in_force(limit: int = limit) -> bool:
            servers = cluster.bootstrap_servers
            below = [produce(servers, "torn", [b"x" * (limit - 100)], p)[0] for p in range(3)]
            above = [produce(servers, "torn", [b"x" * (limit + 1)], p)[0] for p in range(3)]
            return set(below) == {None} and set(above) == {"MSG_SIZE_TOO_LARGE"}

        wait_until(in_force, f"{limit} is in force")
        cluster.start_broker(asked)
        for partition in range(3):
            wait_for_isr(client, "torn", 3, partition)
