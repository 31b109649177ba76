"""Kafka's own commands for groups, and its clients of kinds of groups that are not served."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from integration_tests.groups.group_members import ConfluentMember, poll_until
from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.java_clients import (
    NEWEST,
    QUIET,
    SHORT_LIVED,
    STREAMS,
    TOOLS,
    beside,
    compiled,
    compiled_with,
)
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "tools"
PARTITIONS = 3
LIMIT_S = 180.0
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as made:
        create_topic(made, TOPIC, partitions=PARTITIONS, replication_factor=1)
        yield made


def run_java(class_path: str, *arguments: str) -> str:
    command = ["java", *SHORT_LIVED, QUIET, "-Xmx128m", "-cp", class_path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Tools:
    """Kafka's commands at a cluster, and their output: rows of words."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._class_path = beside(TOOLS)
        self._servers = ("--bootstrap-server", cluster.bootstrap_servers)

    def rows(self, command: str, *arguments: str) -> list[list[str]]:
        output = run_java(self._class_path, command, *self._servers, *arguments)
        return [line.split() for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def tools(cluster) -> Tools:
    return Tools(cluster)


@pytest.fixture
def member(cluster, request) -> Iterator[ConfluentMember]:
    """The only one of the group with the test's name, with all partitions."""
    name = request.node.name
    found = ConfluentMember(cluster.bootstrap_servers, name, TOPIC, group_protocol="consumer")
    poll_until([found], lambda: len(found.owned()) == PARTITIONS, "it owns everything")
    yield found
    found.close()


@in_full
def test_kafka_consumer_groups_lists_types_and_states(tools, member, request):
    rows = tools.rows(GROUPS, "--list", "--state", "--type")
    assert [request.node.name, "Consumer", "Stable"] in rows


@in_full
def test_kafka_consumer_groups_describes_members_with_epochs_and_targets(tools, member, request):
    group = request.node.name
    title, row = tools.rows(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    everything = f"{TOPIC}:" + ",".join(map(str, range(PARTITIONS)))
    found = dict(zip(title, row, strict=True))
    epoch = found["CURRENT-EPOCH"]
    assert (found["TARGET-EPOCH"], found["CURRENT-ASSIGNMENT"], found["TARGET-ASSIGNMENT"]) == (
        epoch,
        everything,
        everything,
    )


@in_full
def test_kafka_consumer_groups_resets_offsets_and_deletes_the_group(tools, member, request):
    group = request.node.name
    given = [TopicPartition(TOPIC, partition, 7) for partition in range(PARTITIONS)]
    member.consumer.commit(offsets=given, asynchronous=False)
    member.close()
    reset = ("--reset-offsets", "--topic", TOPIC, "--to-earliest", "--execute")
    tools.rows(GROUPS, "--group", group, *reset)
    offsets = tools.rows(GROUPS, "--describe", "--group", group)
    tools.rows(GROUPS, "--delete", "--group", group)
    listed = [row[0] for row in tools.rows(GROUPS, "--list")]
    committed = sorted((int(row[2]), int(row[3])) for row in offsets if row[0] == group)
    assert (committed, group in listed) == ([(each, 0) for each in range(PARTITIONS)], False)


@in_full
def test_kafka_features_shows_the_level_of_consumer_groups(tools):
    rows = map(" ".join, tools.rows(FEATURES, "describe"))
    assert any(re.search("group.version .*FinalizedVersionLevel: 1 ", row) for row in rows)


def test_a_consumer_of_a_share_group_hears_that_it_is_not_served(cluster, tmp_path):
    program = compiled(Path(__file__).with_name("JavaUnserved.java"), NEWEST, tmp_path)
    output = run_java(program, "JavaUnserved", cluster.bootstrap_servers, TOPIC)
    assert output.split() == ["UnsupportedVersionException"]


@in_full
def test_kafka_streams_of_the_streams_protocol_hears_that_it_is_not_served(cluster, tmp_path):
    source = Path(__file__).with_name("JavaStreams.java")
    program = compiled_with(beside(STREAMS), source, tmp_path)
    state = str(tmp_path / "state")
    output = run_java(program, "JavaStreams", cluster.bootstrap_servers, TOPIC, state)
    assert output.split() == ["UnsupportedVersionException"]
