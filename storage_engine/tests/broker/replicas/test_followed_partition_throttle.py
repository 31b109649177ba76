"""R-CTL8, KIP-73: a reassignment takes no more of the network than it is given, and no acks=all
waits for it."""

import itertools
from collections.abc import Iterator

import pytest

from simulation.world.requests import make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.controller.reassigning import TP, Moving
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

_NUMBERS = itertools.count()

RATE = 100_000
RECORDS = 20
SIZE = 50_000


@pytest.fixture
def cluster(tmp_path) -> Iterator[Moving]:
    made = Moving(tmp_path, 4, replica_fetch_max_bytes="60000")
    try:
        made.create((1, 2, 3))
        for _ in range(RECORDS):
            made.produced(TP, b"x" * SIZE)
        made.wait_in_sync(TP, 1, 2, 3)
        yield made
    finally:
        made.close()


def configure(cluster: Moving, entity: str, **config: str) -> None:
    values = {key.replace("_", "."): value for key, value in config.items()}
    path = f"/config/{entity}"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, ConfigZNode(config=values).encode())
    cluster.zookeeper.make_parents(f"{ConfigChangeZNode.PARENT}/x")
    notice = f"{ConfigChangeZNode.PREFIX}{next(_NUMBERS):010d}"
    cluster.zookeeper.put(notice, ConfigChangeZNode(entity_path=entity).encode())
    cluster.loop.run_for(500)


def time_to_move(cluster: Moving) -> int:
    begun_ms = cluster.loop.now_ms
    assert cluster.alter({TP: (4, 2, 3)}) == {0: ErrorCode.NONE}
    cluster.wait_done((4, 2, 3))
    return cluster.loop.now_ms - begun_ms


def test_without_a_throttle_it_takes_a_moment(cluster):
    assert time_to_move(cluster) < 2000


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_keeps_to_the_rate_and_ends(cluster, side):
    replicas = {"leader": "0:1,0:2,0:3", "follower": "0:4"}[side]
    configure(cluster, "topics/t", **{f"{side}_replication_throttled_replicas": replicas})
    configure(cluster, "brokers/<default>", **{f"{side}_replication_throttled_rate": str(RATE)})
    least_ms = (RECORDS * len(make_batch(payload=b"x" * SIZE)) / RATE - 2) * 1000
    took_ms = time_to_move(cluster)
    assert least_ms <= took_ms < 3 * least_ms
    configure(cluster, "topics/t")
    assert cluster.contents(4).count(b"x" * SIZE) == RECORDS


def test_replicas_in_sync_do_not_wait_while_another_is_filled(cluster):
    configure(
        cluster,
        "topics/t",
        leader_replication_throttled_replicas="*",
        follower_replication_throttled_replicas="*",
    )
    rates = dict.fromkeys(
        ("leader_replication_throttled_rate", "follower_replication_throttled_rate"), "1000"
    )
    configure(cluster, "brokers/<default>", **rates)
    assert cluster.alter({TP: (4, 2, 3)}) == {0: ErrorCode.NONE}
    cluster.loop.run_for(3000)
    for _ in range(10):
        begun_ms = cluster.loop.now_ms
        cluster.produced(TP, b"y" * SIZE)
        assert cluster.loop.now_ms - begun_ms < 1000
    assert set(cluster.state(TP).isr) == {1, 2, 3}
    configure(cluster, "brokers/<default>")
    cluster.wait_done((4, 2, 3))
