"""Brokers of two releases come, go and die at random while levels are changed: afterwards brokers
use the level that is written, and what a client was told is so."""

import random

import pytest

from simulation.world.cluster import Answers, SimulatedCluster
from storage_engine.broker.wiring import parts
from storage_engine.core.features import GROUP_VERSION, SUPPORTED_BY_FIRST_RELEASE
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.messages.update_features import (
    API,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from storage_engine.tests.sampling import SEED, seeds
from storage_engine.zookeeper.znodes.cluster_znodes import FeatureZNode

STEPS = 40
QUIET_MS = 30_000
TP = TopicPartition("t", 0)


class Upgrades:
    """A cluster with brokers of either release, and what clients were told of levels."""

    def __init__(self, cluster: SimulatedCluster, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.random = random.Random(f"{SEED} {seed}")
        self.patch = patch
        self.old: set[int] = set()
        """The brokers of the earlier release."""
        self.levels_written: list[int] = []
        cluster.zookeeper.on_write = self._on_write

    def _on_write(self, path: str, _before: bytes | None, after: bytes | None) -> None:
        if path == FeatureZNode.PATH and after is not None:
            self.levels_written.append(FeatureZNode.decode(after).levels.get(GROUP_VERSION, 0))

    @property
    def written(self) -> int:
        data = self.cluster.zookeeper.data(FeatureZNode.PATH)
        assert data is not None
        return FeatureZNode.decode(data).levels.get(GROUP_VERSION, 0)

    def step(self) -> None:
        what = self.random.choice((self.kill, *2 * [self.start], *3 * [self.update]))
        what()
        self.cluster.loop.run_for(self.random.choice((0, 1, 3, 10, 200, 8_000)))

    def kill(self) -> None:
        up = [broker for broker in self.cluster.brokers if broker.up]
        if len(up) > 1:
            self.random.choice(up).kill()

    def start(self, *, is_old: bool | None = None) -> None:
        down = [broker for broker in self.cluster.brokers if not broker.up]
        if not down:
            return
        broker = self.random.choice(down)
        self.old.discard(broker.id)
        if self.random.random() < 0.15 if is_old is None else is_old:
            self.old.add(broker.id)
        with self.patch.context() as patch:
            if broker.id in self.old:
                patch.setattr(parts, "SUPPORTED", SUPPORTED_BY_FIRST_RELEASE)
            broker.start()

    def update(self) -> None:
        """Ask the controller, if there is one of this version; check what it says."""
        controller = self.cluster.controller
        if controller is None or controller.id in self.old:
            return
        level, known = self.random.randrange(2), len(self.levels_written)
        answers = self.asked(level)
        if self.random.random() < 0.3:
            self.cluster.loop.run_for(self.random.randrange(12))
            controller.kill()
        self.cluster.loop.run_until(lambda: bool(answers))
        if isinstance(answers[0], TransportError):
            return
        if answers[0].error_code == 0:
            assert self.written == level
        else:
            assert level not in self.levels_written[known:]

    def asked(self, level: int) -> Answers[UpdateFeaturesResponse]:
        row = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=GROUP_VERSION, max_version_level=level, upgrade_type=1 if level else 2
        )
        request = UpdateFeaturesRequest(feature_updates=[row])
        return self.cluster.ask_controller(API, 2, request)

    def come_to_rest(self) -> None:
        """All brokers run, and are of this version."""
        for broker in self.cluster.brokers:
            if broker.up and broker.id in self.old:
                broker.kill()
        while any(not broker.up for broker in self.cluster.brokers):
            self.start(is_old=False)
        self.cluster.loop.run_for(QUIET_MS)


@pytest.mark.parametrize("seed", seeds(24))
def test_every_broker_uses_what_is_written_and_clients_were_told_the_truth(
    cluster, seed, monkeypatch
):
    assert cluster.create_topic(TP.topic).error_code == 0
    upgrades = Upgrades(cluster, seed, monkeypatch)
    for _ in range(STEPS):
        upgrades.step()
    upgrades.come_to_rest()
    for broker in cluster.brokers:
        assert broker.refused == []
        features = broker.parts.cluster.features
        assert features.level(GROUP_VERSION) == upgrades.written
        assert features.finalized.epoch == cluster.zookeeper.nodes[FeatureZNode.PATH].version
    assert cluster.produced(TP, b"afterwards") >= 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    for level in (1, 0):
        assert cluster.answer(upgrades.asked(level)).error_code == 0
