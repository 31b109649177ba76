"""The clusters and the Sparks of the comparison, with as many brokers and the same settings.

Rule: each runs within a block and is gone after it, however the block ends.
"""

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.kafka_cluster import running_kafka
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.beside_kafka.sides import Spark
from benchmarks.support.brokers import Brokers
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import report_line

BROKERS = 3

SETTINGS = (
    ("default.replication.factor", "3"),
    ("min.insync.replicas", "2"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("auto.create.topics.enable", "false"),
    # Deleted topics leave their bytes to the next round.
    ("log.segment.delete.delay.ms", "1000"),
)
"""The settings of both clusters; all others are as each ships them."""


@contextlib.contextmanager
def our_brokers(folder: Path) -> Iterator[Brokers]:
    """Run Headrace within the block, in a folder below `folder`."""
    request = UpRequest(brokers=BROKERS, port=0, settings=SETTINGS)
    with LocalCluster.running(folder / OURS, request) as cluster:
        pids = [entry.pid for entry in cluster.state.brokers if entry.pid is not None]
        yield Brokers(cluster.bootstrap_servers, pids)


def their_brokers(folder: Path, jars: Sequence[Path]) -> AbstractContextManager[Brokers]:
    """Run Apache Kafka within the block, in a folder below `folder`."""
    return running_kafka(folder / THEIRS, jars, SETTINGS, BROKERS)


@contextlib.contextmanager
def spark_of(
    name: str,
    brokers: Brokers,
    python: Path,
    worker: str,
    args: argparse.Namespace,
    jars: Sequence[Path],
) -> Iterator[Spark]:
    """Run the Spark of one side within the block, with the jobs of the module `worker`, and with
    the cores and settings of `args`."""
    report_line(f"starting the Spark of {name}")
    arguments = ["--format", name, "--servers", brokers.bootstrap_servers]
    arguments += ["--cores", str(args.cores), "--jars", ",".join(map(str, jars))]
    arguments += ["--conf", json.dumps(args.conf)]
    # Sockets have short paths only: not below --dir, which may be a long one.
    with (
        scratch() as files,
        Spark.running(python, Path(files), worker, arguments) as spark,
    ):
        yield spark
