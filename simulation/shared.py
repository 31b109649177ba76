"""The state that all parts of one run share: the seed's choices, the cluster, and its checker."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from simulation.checks.checkers import Checker
from simulation.checks.trace import Trace
from simulation.world.cluster import SimulatedCluster

NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The properties that a seed chooses for the whole run."""

    brokers: int
    min_insync_replicas: int
    durable: bool
    """The setting `flush.before.ack`."""
    network_delay_max_ms: int
    zookeeper_delay_max_ms: int
    power_fails: bool

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers, min.insync.replicas={self.min_insync_replicas}"
            f"{', flush.before.ack' if self.durable else ''}"
            f"{', power fails' if self.power_fails else ''}, network up to"
            f" {self.network_delay_max_ms} ms, zookeeper up to {self.zookeeper_delay_max_ms} ms"
        )


def profile_of(seed: int) -> Profile:
    choose = random.Random(f"profile {seed}")
    if seed < 0:
        # This is one more than the script needs: another broker is the controller.
        return Profile(
            brokers=4,
            min_insync_replicas=choose.choice((1, 2)),
            durable=False,
            network_delay_max_ms=choose.choice((1, 3, 10)),
            zookeeper_delay_max_ms=choose.choice((1, 3, 10)),
            power_fails=False,
        )
    return Profile(
        brokers=choose.choice((3, 3, 3, 4)),
        min_insync_replicas=choose.choice((1, 2, 2)),
        durable=(durable := choose.random() < 0.25),
        network_delay_max_ms=choose.choice((1, 3, 10, 40)),
        zookeeper_delay_max_ms=choose.choice((1, 3, 10, 40)),
        power_fails=durable or choose.random() < 0.25,
    )


class Run(NamedTuple):
    """One run's cluster, with the checker that watches it."""

    seed: int
    profile: Profile
    cluster: SimulatedCluster
    trace: Trace
    checker: Checker

    def chooser(self, whose: str, *numbers: int) -> random.Random:
        """Return a generator of its own, so that the choices of others stay as they are."""
        return random.Random(" ".join(map(str, (whose, self.seed, *numbers))))

    def expect_topic(
        self, topic: str, *, min_in_sync: int | None = None, compacted: bool = False
    ) -> None:
        """Announce a topic of the profile to the checker."""
        self.checker.expect_topic(
            topic,
            unclean=False,
            min_in_sync=min_in_sync or self.profile.min_insync_replicas,
            durable=self.profile.durable,
            compacted=compacted,
        )

    def create_topic(
        self, topic: str, settings: Mapping[str, str] = NONE, *, partitions: int = 1
    ) -> None:
        """Create a topic that was announced, with more settings than those of the profile."""
        all_settings = {**settings, "min_insync_replicas": str(self.profile.min_insync_replicas)}
        if self.profile.durable:
            all_settings["flush_before_ack"] = "true"
        self.cluster.create_topic(topic, partitions, **all_settings)
