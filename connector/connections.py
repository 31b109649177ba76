"""One connection pool per process and cluster. A forked child never uses its parent's connections.

Spark reuses its Python workers, so connections and metadata outlive a task.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.options.connection_options import ConnectionOptions
from storage_engine.core.errors import ConfigError

if TYPE_CHECKING:
    from storage_engine.client.cluster import Cluster

MAX_CLUSTERS = 16
"""Pools per process; one more closes the pool that was unused for longest. Most processes use one
or two clusters."""

_clusters: dict[tuple[ConnectionOptions, int], "Cluster"] = {}
"""Clusters by their options, and their file's time of change, so that a secret which was changed
there counts from the next task on."""
_owner_pid = os.getpid()


def cluster_for(options: ConnectionOptions) -> "Cluster":
    """The process's cluster for these options. It connects at its first request, not here."""
    global _owner_pid
    if _owner_pid != os.getpid():
        # These sockets are the parent's, which still uses them.
        _clusters.clear()
        _owner_pid = os.getpid()
    key = options, _changed_at(options.config_file)
    cluster = _clusters.pop(key, None)
    if cluster is None:
        try:
            cluster = new_cluster(options, bootstrap_timeout_ms=options.request_timeout_ms)
        except ConfigError as error:
            # A file that the settings name is not right on this machine.
            raise OptionError("BAD_OPTION", str(error)) from None
        if len(_clusters) >= MAX_CLUSTERS:
            _clusters.pop(next(iter(_clusters))).close()
    _clusters[key] = cluster
    return cluster


def new_cluster(
    options: ConnectionOptions, *, bootstrap_timeout_ms: int | None = None
) -> "Cluster":
    """A cluster with connections of its own."""
    from storage_engine.client.cluster import BOOTSTRAP_TIMEOUT_MS, Cluster

    return Cluster(
        options.bootstrap_servers,
        client_id=options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        security=options.client_security(),
        bootstrap_timeout_ms=bootstrap_timeout_ms or BOOTSTRAP_TIMEOUT_MS,
    )


def _changed_at(config_file: str | None) -> int:
    """The file's time of modification, in ns; 0 if missing: the error comes from its reader."""
    if config_file is None:
        return 0
    try:
        return Path(config_file).stat().st_mtime_ns
    except OSError:
        return 0


def close_all() -> None:
    """Closes all connections that this process opened."""
    if _owner_pid == os.getpid():
        for cluster in _clusters.values():
            cluster.close()
    _clusters.clear()
