"""One connection pool per process and cluster. A forked child never uses its parent's connections.

Spark reuses its Python workers, so connections and metadata outlive a task.
"""

import os
from typing import TYPE_CHECKING

from connector.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from storage_engine.client.cluster import Cluster

MAX_CLUSTERS = 16
"""Pools per process; one more closes the pool that was unused for longest. Most processes use one
or two clusters."""

_clusters: dict[ConnectionOptions, "Cluster"] = {}
_owner_pid = os.getpid()


def cluster_for(options: ConnectionOptions) -> "Cluster":
    """The process's cluster for these options. It connects at its first request, not here."""
    global _owner_pid
    from storage_engine.client.cluster import Cluster

    if _owner_pid != os.getpid():
        # These sockets are the parent's, which still uses them.
        _clusters.clear()
        _owner_pid = os.getpid()
    cluster = _clusters.pop(options, None)
    if cluster is None:
        cluster = Cluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            bootstrap_timeout_ms=options.request_timeout_ms,
            security=options.client_security(),
        )
        if len(_clusters) >= MAX_CLUSTERS:
            _clusters.pop(next(iter(_clusters))).close()
    _clusters[options] = cluster
    return cluster


def close_all() -> None:
    """Closes all connections that this process opened."""
    if _owner_pid == os.getpid():
        for cluster in _clusters.values():
            cluster.close()
    _clusters.clear()
