"""A cluster of the present version on the files that an earlier version left behind."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration_tests.support.cluster_support import running_cluster
from storage_engine.tools.local.local_cluster import LocalCluster

HERE = Path(__file__).parent
COMMITS = tuple(
    sorted(path.name.removesuffix(".tar.gz").removeprefix("cluster-") for path in HERE.glob("*.gz"))
)
"""Of each earlier version there are files of; `make_kept_cluster.py` has made them."""

SETTINGS = (
    ("transaction.state.log.num.partitions", "2"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"),
)


def unpack(commit: str, folder: Path) -> None:
    """Makes `broker`, `zookeeper` and `checkpoint` in the folder."""
    subprocess.run(["tar", "-xzf", HERE / f"cluster-{commit}.tar.gz", "-C", folder], check=True)


@contextlib.contextmanager
def running_kept_cluster(commit: str, folder: Path) -> Iterator[LocalCluster]:
    """One broker. `folder / "checkpoint"` is the checkpoint of the query that copies orders."""
    unpack(commit, folder)
    cluster = folder / "cluster"
    for kept, place in (("broker", "broker-1/data"), ("zookeeper", "zookeeper/version-2")):
        (cluster / place).parent.mkdir(parents=True)
        (folder / kept).rename(cluster / place)
    with running_cluster(cluster, brokers=1, settings=SETTINGS, has_zookeeper=True) as running:
        yield running


def described(commit: str) -> dict[str, Any]:
    """What clients saw of every partition before."""
    found: dict[str, Any] = json.loads((HERE / f"cluster-{commit}.json").read_text())
    return found
