"""What each feature does in each scenario."""

from typing import Protocol

from integration_tests.features.mixed_cluster import MixedCluster


class Check(Protocol):
    """One feature, as its users have it."""

    def is_possible(self, cluster: MixedCluster) -> bool:
        """Whether the version that made the cluster has the feature."""
        ...

    def initialize(self, cluster: MixedCluster) -> None: ...

    def work(self, cluster: MixedCluster) -> None:
        """One round, between two steps of the scenario, whatever versions run."""
        ...

    def validate(self, cluster: MixedCluster) -> None:
        """All that was promised in all rounds holds."""
        ...

    def close(self) -> None: ...


class Always:
    """A feature of every version, of which nothing stays open."""

    def is_possible(self, cluster: MixedCluster) -> bool:
        return True

    def close(self) -> None:
        pass
