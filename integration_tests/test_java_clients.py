"""Kafka's own Java client, unmodified, with no special setting. It comes from Maven's central
repository, once; Spark's jars have what it needs besides.
"""

import hashlib
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pyspark
import pytest

from integration_tests.cluster_support import ALL_FAULTS, create_topic, running_cluster
from storage_engine.tools.local_cluster import LocalCluster

SOURCE = Path(__file__).with_name("JavaClients.java")
JARS = Path(pyspark.__file__).parent / "jars"
REPOSITORY = "https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients"
SHA256 = {
    "3.9.1": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "4.1.0": "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627",
}
VERSIONS = list(SHA256) if ALL_FAULTS else ["4.1.0"]
RECORDS = 500
PARTITIONS = 3
LIMIT_S = 600.0


def client_jar(version: str) -> Path:
    """From the cache, or fetched and checked; skips where neither can be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-tests"
    jar = cache / f"kafka-clients-{version}.jar"
    if not jar.exists():
        url = f"{REPOSITORY}/{version}/{jar.name}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = answer.read()
        except OSError as error:
            pytest.skip(f"{url} can't be fetched: {error}")
        cache.mkdir(parents=True, exist_ok=True)
        partial = jar.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.rename(jar)
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert found == SHA256[version], f"{jar} is another file; remove it"
    return jar


@pytest.fixture(scope="module", params=VERSIONS)
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """Feature -> the lines that the client said of it."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed: a JRE alone can't compile the client's program")
    jar = client_jar(request.param)
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", jar, "-d", classes, SOURCE], check=True, timeout=LIMIT_S)
    settings = (("group.initial.rebalance.delay.ms", "200"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as cluster:
        return run_client(cluster, f"{classes}:{jar}:{JARS}/*")


def run_client(cluster: LocalCluster, path: str) -> dict[str, list[str]]:
    features = ["compressions", "transactions", "groups"]
    for topic in (*features, "transactions-copied"):
        create_topic(cluster, topic, partitions=PARTITIONS, replication_factor=1)
    command = ["java", "-Xmx256m", "-cp", path, "JavaClients", cluster.bootstrap_servers]
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


def test_java_creates_describes_and_deletes_topics(said):
    assert said["admin"] == [
        "brokers 1",
        "compact",
        f"partitions {PARTITIONS}",
        "latest 0",
        "deleted",
    ]
