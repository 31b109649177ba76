"""The levels that brokers tell, each asked by itself."""

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import wait_until
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import versions_request
from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import GROUP_VERSION
from storage_engine.protocol.apis.api_versions import API


def wait_for_level(cluster: MixedCluster, level: int) -> None:
    """Wait until each live broker uses this level of groups."""
    wait_until(lambda: _levels(cluster) == {level}, f"all brokers use level {level}")


def _levels(cluster: MixedCluster) -> set[int]:
    """The levels that brokers use; none while one of them does not answer."""
    found = set()
    with Cluster(cluster.bootstrap_servers) as client:
        try:
            for broker in client.metadata([]).brokers:
                answer = client.request(broker, API, versions_request(), timeout_ms=10_000)
                told = {each.name: each.max_version for each in answer.finalized_features}
                found.add(told.get(GROUP_VERSION, 0))
        except HeadraceError:
            # It is dead, and named a moment longer.
            return set()
    return found
