"""The exactly-once sink with a real Spark, of which drivers, tasks and coordinators are killed at
the worst moments: confluent-kafka reads every id once. Source: R-SPARK2, "Tests it needs".
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_until,
)
from integration_tests.faulty_sink import ROWS_BEFORE_A_FAULT
from integration_tests.spark_sink_driver import PER_BATCH
from integration_tests.spark_support import consume, produce, servers, topic
from storage_engine.core.transaction_state import state_partition
from storage_engine.tools.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

__all__ = ["servers", "topic"]

ROOT = Path(__file__).parent.parent
RUN_TIMEOUT_S = 300
STATE = "__transaction_state"
STATE_PARTITIONS = 5


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (("transaction.state.log.num.partitions", str(STATE_PARTITIONS)),)
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        yield made


@contextlib.contextmanager
def driver(
    servers: str, topic: str, folder: Path, *, min_partitions: int, keyed: bool = False
) -> Iterator["Driver"]:
    """In a process group of its own, with its JVM and its Python workers."""
    command = [sys.executable, "-m", "integration_tests.spark_sink_driver"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(*command, servers, topic, f"{topic}-target", str(folder), str(min_partitions)),
                *(("keyed",) if keyed else ()),
            ],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Driver(process, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reached = folder / "reached"
        if reached.exists():
            # The Python worker that commits is in another group, and would go on.
            os.kill(int(reached.read_text()), signal.SIGKILL)
            reached.unlink()


class Driver:
    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def reaches(self, moment: str) -> None:
        """Waits until the driver stands still there; killed by the end of the block, or let go."""
        reached = self._folder / "reached"
        wait_until(
            lambda: reached.exists() or self._process.poll() is not None,
            moment,
            timeout_s=RUN_TIMEOUT_S,
        )
        assert self._process.poll() is None, self._log()

    def goes_on(self) -> None:
        (self._folder / "reached").unlink()

    def ends(self) -> None:
        assert self._process.wait(RUN_TIMEOUT_S) == 0, self._log()

    def _log(self) -> str:
        return (self._folder / "log").read_text()[-4000:]


def prepared(cluster: LocalCluster, topic: str, batches: int) -> None:
    """A source with so many micro-batches, and an empty target."""
    create_topic(cluster, topic, partitions=2)
    create_topic(cluster, f"{topic}-target", partitions=3)
    ids = ({"value": b"%d" % number} for number in range(batches * PER_BATCH))
    produce(cluster.bootstrap_servers, topic, ids)


def ids(servers: str, topic: str, **isolation: str) -> Counter[int]:
    """How often each id is read."""
    messages = consume(servers, f"{topic}-target", **isolation)
    return Counter(int((each.value() or b"").split(b":")[0]) for each in messages)


def once(batches: int) -> Counter[int]:
    return Counter(range(batches * PER_BATCH))


def committed(folder: Path, batch: int) -> bool:
    """Whether Spark has written that down."""
    return (folder / "checkpoint" / "commits" / str(batch)).exists()


def test_a_driver_killed_before_and_after_the_commit_doubles_and_loses_nothing(
    spark_cluster, servers, topic, tmp_path
):
    """A query that is not deterministic, with other parallelism at every replay."""
    prepared(spark_cluster, topic, 4)
    (tmp_path / "before-commit-1").touch()
    with driver(servers, topic, tmp_path, min_partitions=2) as first:
        first.reaches("all tasks of batch 1 have written")
    assert committed(tmp_path, 0) and not committed(tmp_path, 1)
    # The tasks' rows are in the log, and open.
    assert ids(servers, topic, isolation="read_uncommitted").total() == 2 * PER_BATCH

    (tmp_path / "after-commit-2").touch()
    with driver(servers, topic, tmp_path, min_partitions=4) as second:
        second.reaches("batch 2 is committed")
    assert committed(tmp_path, 1) and not committed(tmp_path, 2)
    assert ids(servers, topic).total() == 3 * PER_BATCH

    with driver(servers, topic, tmp_path, min_partitions=3) as third:
        third.ends()
    assert committed(tmp_path, 3)
    assert ids(servers, topic) == once(4)
    # What the first driver wrote for batch 1 is there, and nobody read it; batch 2 was not written
    # again.
    assert ids(servers, topic, isolation="read_uncommitted").total() == 5 * PER_BATCH


def test_failed_and_killed_tasks_and_a_killed_coordinator_double_and_lose_nothing(
    spark_cluster, servers, topic, tmp_path
):
    prepared(spark_cluster, topic, 3)
    for fault in ("raise-0", "kill-1", "before-commit-2"):
        (tmp_path / fault).touch()
    sink = f"{topic}-target"
    with driver(servers, topic, tmp_path, min_partitions=2) as running:
        running.reaches("all tasks of batch 2 have written")
        partition = state_partition(sink, STATE_PARTITIONS)
        coordinator = leader_of(admin(spark_cluster), STATE, partition)
        spark_cluster.kill_broker(coordinator)
        running.goes_on()
        running.ends()
    spark_cluster.start_broker(coordinator)
    assert ids(servers, topic) == once(3)
    # The attempts that failed had written some of their rows.
    extra = ids(servers, topic, isolation="read_uncommitted") - once(3)
    assert extra.total() >= 2 * ROWS_BEFORE_A_FAULT // 2
