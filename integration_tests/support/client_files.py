"""How tests' own clients connect to a cluster that is secured: by the file that `headrace up` has
written, which is known here by the cluster's addresses."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from storage_engine.tools.local.local_cluster import LocalCluster

_files: dict[str, Path] = {}


@contextlib.contextmanager
def connected_as_admin(cluster: LocalCluster) -> Iterator[None]:
    """Within the block, clients of tests connect to the cluster as its super user."""
    file = cluster.admin_config(cluster.state)
    assert file is not None, "the cluster is not secured"
    servers = cluster.bootstrap_servers
    _files[servers] = file
    try:
        yield
    finally:
        del _files[servers]


def file_for(servers: str) -> Path | None:
    """The file by which to connect; None for a cluster that is open."""
    return _files.get(servers)


def settings_for(servers: str) -> dict[str, str]:
    """Settings of librdkafka by which to connect."""
    file = file_for(servers)
    if file is None:
        return {"bootstrap.servers": servers}
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))
