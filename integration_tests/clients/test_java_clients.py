"""Kafka's own Java client, unmodified, with no special setting."""

import subprocess
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.java_clients import NEWEST, SHA256, SHORT_LIVED, compiled
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

SOURCE = Path(__file__).with_name("JavaClients.java")
VERSIONS = list(SHA256) if ALL_FAULTS else [NEWEST]
RECORDS = 500
PARTITIONS = 3
LIMIT_S = 600.0


@pytest.fixture(scope="module", params=VERSIONS)
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Feature -> the lines that the client said of it."""
    path = compiled(SOURCE, request.param, tmp_path_factory.mktemp("classes"))
    settings = (("group.initial.rebalance.delay.ms", "200"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as cluster:
        return run_client(cluster, path)


def run_client(cluster: LocalCluster, path: str) -> dict[str, list[str]]:
    features = ["compressions", "transactions", "groups", "statics"]
    for topic in (*features, "transactions-copied"):
        create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
    java = ["java", *SHORT_LIVED, "-Xmx256m"]
    command = [*java, "-cp", path, "JavaClients", cluster.bootstrap_servers]
    output = subprocess.run(
        [*command, *features, "admin"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert output.returncode == 0, output.stdout + output.stderr
    lines: dict[str, list[str]] = {}
    for line in output.stdout.splitlines():
        feature, separator, text = line.partition(": ")
        if separator:
            lines.setdefault(feature, []).append(text)
    return lines


def test_java_writes_and_reads_with_every_compression(said):
    counts = ", ".join(f"{codec}={RECORDS}" for codec in ("gzip", "lz4", "none", "snappy", "zstd"))
    assert said["compressions"] == ["{" + counts + "}"]


def test_java_consumes_transforms_and_produces_in_transactions(said):
    first_try = int(said["transactions"][1].removeprefix("read_uncommitted ")) - RECORDS
    assert first_try > 0, "the aborted transaction wrote something"
    assert said["transactions"] == [
        f"read_committed {RECORDS}",
        f"read_uncommitted {RECORDS + first_try}",
        f"distinct {RECORDS}",
        f"committed {RECORDS}",
    ]


def test_java_members_share_the_partitions_and_take_over_what_one_leaves(said):
    assert said["groups"] == ["shared", f"owned {PARTITIONS}", "described 0"]


def test_java_starts_a_static_member_again_and_disturbs_nobody(said):
    assert said["statics"] == ["again true", "rebalances 0"]


def test_java_creates_describes_and_deletes_topics(said):
    assert said["admin"] == [
        "brokers 1",
        "created 3 1 compact DEFAULT_CONFIG",
        "compact",
        f"partitions {PARTITIONS}",
        "latest 0",
        "local 0",
        "feature 2",
        "groups 0",
        "groups 1",
        "InvalidUpdateVersionException",
        "logger ERROR",
        "deleted",
    ]
