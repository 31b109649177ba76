"""kcat (Debian's package), unmodified: the command line of a librdkafka years older than ours."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from integration_tests.cluster_support import create_topic, running_cluster
from storage_engine.tools.local_cluster import LocalCluster

LINES = [f"key{number}:value {number}" for number in range(200)]
LIMIT_S = 120.0

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = (("group.initial.rebalance.delay.ms", "200"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


def kcat(cluster: LocalCluster, *arguments: str, stdin: str = "") -> list[str]:
    output = subprocess.run(
        ["kcat", "-b", cluster.bootstrap_servers, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert output.returncode == 0, output.stderr
    return output.stdout.splitlines()


def produce(cluster: LocalCluster, topic: str, *arguments: str) -> None:
    kcat(cluster, "-P", "-t", topic, "-K", ":", *arguments, stdin="\n".join(LINES) + "\n")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kcat_writes_it_reads_again(cluster, codec):
    create_topic(cluster, codec, partitions=2, replication_factor=1)
    produce(cluster, codec, "-z", codec, "-H", "from=kcat")
    read = kcat(cluster, "-C", "-t", codec, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n")
    assert sorted(read) == sorted(f"{line} from=kcat" for line in LINES)


def test_kcat_reads_as_a_member_of_a_group_and_goes_on_where_it_stopped(cluster):
    create_topic(cluster, "grouped", partitions=2, replication_factor=1)
    produce(cluster, "grouped")
    member = ("-G", "kcats", "-X", "auto.offset.reset=earliest", "-e", "-q", "-K", ":")
    assert sorted(kcat(cluster, *member, "grouped")) == sorted(LINES)
    produce(cluster, "grouped")
    assert sorted(kcat(cluster, *member, "grouped")) == sorted(LINES), "only what is new"


def test_kcat_writes_in_a_transaction_and_lists_the_cluster(cluster):
    create_topic(cluster, "transactional", replication_factor=1)
    produce(cluster, "transactional", "-X", "transactional.id=kcat")
    assert kcat(cluster, "-C", "-t", "transactional", "-e", "-q", "-K", ":") == LINES
    listed = "\n".join(kcat(cluster, "-L"))
    assert 'topic "transactional" with 1 partitions' in listed


def test_kcat_finds_offsets_by_time(cluster):
    create_topic(cluster, "timed", replication_factor=1)
    produce(cluster, "timed")
    assert kcat(cluster, "-Q", "-t", "timed:0:1") == ["timed [0] offset 0"]
