"""One way to the brokers for the threads that ask something before a table is opened."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from storage_engine.client.cluster import Cluster


class Brokers:
    """Lends a cluster to one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        """`cluster`: of this object's own."""
        self._cluster = cluster
        self._lock = threading.Lock()

    @contextmanager
    def lent(self) -> Iterator[Cluster]:
        """For a few requests; others wait meanwhile."""
        with self._lock:
            yield self._cluster

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._cluster.close()
