"""Quotas stay as they were set."""

from integration_tests.features.mixed_cluster import MixedCluster
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import succeed_here
from integration_tests.upgrades.checks.check import Always
from storage_engine.client.admin.client_quotas import describe_client_quotas
from storage_engine.client.cluster import Cluster


class Quotas(Always):
    def initialize(self, cluster: MixedCluster) -> None:
        self._rates: list[int] = []

    def work(self, cluster: MixedCluster) -> None:
        rate = 1_000_000 + len(self._rates)
        succeed_here(
            *("quotas", "add", "--bootstrap-server", cluster.bootstrap_servers),
            *("--client-id", f"client-{len(self._rates)}", "--producer-byte-rate", rate),
        )
        self._rates.append(rate)

    def validate(self, cluster: MixedCluster) -> None:
        def told() -> list[float]:
            with Cluster(cluster.bootstrap_servers) as client:
                found = describe_client_quotas(client)
            return sorted(rate for each in found for rate in each.values.values())

        # A broker that has just started hears of them a moment later.
        wait_until(lambda: told() == self._rates, f"the rates are {self._rates}")
