"""The test's side of `spark_sink_driver`: a driver in a process of its own, killed when a test
wants it, and what it wrote. The log is read by confluent-kafka."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from integration_tests.spark.spark_sink_driver import PER_BATCH
from integration_tests.support.cluster_support import (
    create_topic,
    wait_until,
)
from integration_tests.support.spark_support import consume, produce
from storage_engine.tools.local.local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 300
STATE = "__transaction_state"


@contextlib.contextmanager
def driver(
    servers: str, topic: str, folder: Path, *, min_partitions: int, keyed: bool = False
) -> Iterator["Driver"]:
    """Starts a driver in a process group of its own, with its JVM and its Python workers."""
    command = [sys.executable, "-m", "integration_tests.spark.spark_sink_driver"]
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
        """Waits until the driver stops at that moment. The end of the block lets it go on, unless
        it was killed."""
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
    """Makes a source with that many micro-batches, and an empty target."""
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
    """Whether Spark has written that micro-batch to its commit log."""
    return (folder / "checkpoint" / "commits" / str(batch)).exists()
