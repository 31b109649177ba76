"""One connection pool per process and cluster. Its one rule: a forked child never uses its
parent's.

Spark reuses its Python workers, so connections and metadata outlive a task (FACTS.md).
"""

import os
from typing import TYPE_CHECKING

from connector.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from storage_engine.client.cluster import Cluster

MAX_CLUSTERS = 16
"""Pools kept per process; the one unused for longest goes. A process reads one or two clusters."""

_clusters: dict[ConnectionOptions, "Cluster"] = {}
_owner_pid = os.getpid()


def cluster_for(options: ConnectionOptions) -> "Cluster":
    """The process's cluster for these options; opened at its first request, not here."""
    global _owner_pid
    from storage_engine.client.cluster import Cluster

    if _owner_pid != os.getpid():
        # The parent's sockets: closing them here would not disturb it, but they are not ours.
        _clusters.clear()
        _owner_pid = os.getpid()
    cluster = _clusters.pop(options, None)
    if cluster is None:
        cluster = Cluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            bootstrap_timeout_ms=options.request_timeout_ms,
        )
        if len(_clusters) >= MAX_CLUSTERS:
            _clusters.pop(next(iter(_clusters))).close()
    _clusters[options] = cluster
    return cluster


def close_all() -> None:
    """Closes what this process opened."""
    if _owner_pid == os.getpid():
        for cluster in _clusters.values():
            cluster.close()
    _clusters.clear()
