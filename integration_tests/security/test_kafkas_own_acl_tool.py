"""Kafka's `kafka-acls` 3.9, through our brokers and through Kafka's own authorizer at the same
ZooKeeper: each finds what the other has written.

Skipped where `headrace bench beside-kafka` has not fetched Kafka.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import running_cluster, wait_until
from integration_tests.support.java_clients import SHORT_LIVED
from storage_engine.tools.local.local_cluster import LocalCluster

KAFKA = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "headrace"
    / "beside-kafka"
    / "kafka-3.9.1"
)
LIMIT_S = 120.0
SETTINGS = (("authorizer.class.name", "AclAuthorizer"), ("super.users", "User:ANONYMOUS"))

pytestmark = pytest.mark.skipif(
    not KAFKA.is_dir() or shutil.which("java") is None, reason=f"there is no Java or no {KAFKA}"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=SETTINGS) as made:
        yield made


def _kafka_acls(*arguments: str) -> str:
    command = ["java", *SHORT_LIVED, "-cp", f"{KAFKA}/*", "kafka.admin.AclCommand", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _by_broker(cluster: LocalCluster) -> list[str]:
    return ["--bootstrap-server", cluster.bootstrap_servers]


def _by_zookeeper(cluster: LocalCluster) -> list[str]:
    """Kafka's AclAuthorizer itself reads and writes."""
    return [
        "--authorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "--authorizer-properties",
        f"zookeeper.connect={cluster.state.zookeeper}",
    ]


def test_kafkas_authorizer_reads_what_we_wrote(cluster):
    consumer = ["--consumer", "--topic", "team-", "--group", "g-"]
    _kafka_acls(
        *_by_broker(cluster),
        *("--add", "--allow-principal", "User:carol", *consumer),
        *("--resource-pattern-type", "prefixed"),
    )
    listed = _kafka_acls(*_by_zookeeper(cluster), "--list")
    assert "resourceType=TOPIC, name=team-, patternType=PREFIXED" in listed
    assert "(principal=User:carol, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "resourceType=GROUP, name=g-, patternType=PREFIXED" in listed


def test_we_read_what_kafkas_authorizer_wrote(cluster):
    rule = ["--deny-principal", "User:eve", "--deny-host", "1.2.3.4", "--operation", "All"]
    _kafka_acls(*_by_zookeeper(cluster), "--add", *rule, "--topic", "secret")

    def is_listed() -> bool:
        listed = _kafka_acls(*_by_broker(cluster), "--list", "--topic", "secret")
        wanted = "(principal=User:eve, host=1.2.3.4, operation=ALL, permissionType=DENY)"
        return wanted in listed

    wait_until(is_listed, "the broker has learned of the rule")
