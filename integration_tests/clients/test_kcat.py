"""kcat (Debian's package), unmodified: the command line of a librdkafka years older than ours."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Self

import pytest

from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.tools.local.local_cluster import LocalCluster

LINES = [f"key{number}:value {number}" for number in range(200)]
LIMIT_S = 120.0
SESSION_MS = 3_000
ASSIGNED = re.compile(r"% Group .* rebalanced .*: assigned: (.*)")

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = (
        ("group.initial.rebalance.delay.ms", "200"),
        ("group.min.session.timeout.ms", str(SESSION_MS)),
    )
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
    # It has ended once the commit was decided, before the marker was written: until then a reader
    # of what is committed is at the end before the first record.
    reading = ("-C", "-t", "transactional", "-e", "-q", "-K", ":")
    assert wait_until(lambda: kcat(cluster, *reading), "the marker is there") == LINES
    listed = "\n".join(kcat(cluster, "-L"))
    assert 'topic "transactional" with 1 partitions' in listed


def test_kcat_finds_offsets_by_time(cluster):
    create_topic(cluster, "timed", replication_factor=1)
    produce(cluster, "timed")
    assert kcat(cluster, "-Q", "-t", "timed:0:1") == ["timed [0] offset 0"]


class Member:
    """One that reads until it is killed."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str) -> None:
        session = ("-X", f"session.timeout.ms={SESSION_MS}", "-X", "heartbeat.interval.ms=500")
        self._process = subprocess.Popen(
            ["kcat", "-b", cluster.bootstrap_servers, *session, "-G", group, topic],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.owned: set[str] = set()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := ASSIGNED.match(line.strip()):
                self.owned = set(found[1].split(", "))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


def test_kcats_share_the_partitions_and_take_over_what_a_killed_one_had(cluster):
    create_topic(cluster, "taken-over", partitions=2, replication_factor=1)
    every = {"taken-over [0]", "taken-over [1]"}
    with Member(cluster, "takers", "taken-over") as first:
        wait_until(lambda: first.owned == every, "the first owns everything")
        with Member(cluster, "takers", "taken-over") as second:
            wait_until(
                lambda: (
                    len(first.owned) == len(second.owned) == 1
                    and first.owned | second.owned == every
                ),
                "each has a part",
            )
        wait_until(lambda: first.owned == every, "the dead one's part is taken")
