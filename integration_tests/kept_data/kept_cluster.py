"""A cluster of the present version on the files that a release left behind."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration_tests.support.cluster_support import running_cluster
from storage_engine.tools.local.local_cluster import LocalCluster

HERE = Path(__file__).parent
RELEASES = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz"))
"""The releases of which there are files; `make.py` has made them."""

DESCRIPTION = "described.json"

SETTINGS = (
    ("transaction.state.log.num.partitions", "2"),
    ("offsets.topic.num.partitions", "2"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"),
)


def unpack(release: str, folder: Path) -> dict[str, Any]:
    """Makes `broker`, `zookeeper` and `checkpoint` in the folder. Returns what clients saw of every
    partition before."""
    subprocess.run(["tar", "-xzf", HERE / f"{release}.tar.gz", "-C", folder], check=True)
    described: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
    return described


@contextlib.contextmanager
def running_kept_cluster(
    release: str, folder: Path
) -> Iterator[tuple[LocalCluster, dict[str, Any]]]:
    """One broker, and what clients saw of it before. `folder / "checkpoint"` is the checkpoint of
    the query that copies orders."""
    described = unpack(release, folder)
    cluster = folder / "cluster"
    for kept, place in (("broker", "broker-1/data"), ("zookeeper", "zookeeper/version-2")):
        (cluster / place).parent.mkdir(parents=True)
        (folder / kept).rename(cluster / place)
    with running_cluster(cluster, brokers=1, settings=SETTINGS, has_zookeeper=True) as running:
        yield running, described
