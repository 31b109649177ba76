"""SIGKILL of the controller while it changes a level: the level is the old or the new one, the same
on every broker, and the new one where the client was told so."""

import json
import random
import signal
import threading
import time

from kazoo.client import KazooClient

from integration_tests.features.levels import wait_for_level
from integration_tests.features.mixed_cluster import MixedCluster, mixed_cluster
from storage_engine.client.admin.features import update_features
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import GROUP_VERSION, UpgradeType
from storage_engine.tests.sampling import SEED, seeds

LATEST_KILL_S = 0.04
"""An update takes some milliseconds."""


class Update(threading.Thread):
    """One change of the level, and whether the client was told that it is done."""

    def __init__(self, cluster: MixedCluster, level: int) -> None:
        super().__init__()
        self._servers = cluster.bootstrap_servers
        self._level = level
        self.is_told = False
        self.begun = threading.Event()

    def run(self) -> None:
        kind = UpgradeType.UPGRADE if self._level else UpgradeType.SAFE_DOWNGRADE
        with Cluster(self._servers, deadline_ms=5_000, request_timeout_ms=2_000) as client:
            client.metadata([])
            self.begun.set()
            try:
                update_features(client, {GROUP_VERSION: self._level}, upgrade_type=kind)
            except HeadraceError:
                return
        self.is_told = True


def written(zookeeper: KazooClient) -> int:
    features = json.loads(zookeeper.get("/feature")[0])["features"]
    return features.get(GROUP_VERSION, {"max_version_level": 0})["max_version_level"]


def test_the_level_is_the_old_or_the_new_one_everywhere(tmp_path):
    chance = random.Random(SEED)
    with mixed_cluster(tmp_path / "cluster") as cluster:
        cluster.start(1, 2, 3)
        zookeeper = KazooClient(cluster.zookeeper_connect)
        zookeeper.start()
        try:
            for _ in seeds(12):
                before = written(zookeeper)
                controller = cluster.controller()
                update = Update(cluster, 1 - before)
                update.start()
                update.begun.wait()
                time.sleep(chance.uniform(0, LATEST_KILL_S))
                cluster.stop(controller, signum=signal.SIGKILL)
                update.join()
                level = written(zookeeper)
                if update.is_told:
                    assert level == 1 - before
                cluster.controller()
                wait_for_level(cluster, level)
                cluster.start(controller)
                wait_for_level(cluster, level)
                assert written(zookeeper) == level
        finally:
            zookeeper.stop()
            zookeeper.close()
