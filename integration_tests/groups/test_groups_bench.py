"""`headrace bench groups`: its members are real members of real groups.

The full run has the command itself, beside Apache Kafka, where its jars have been fetched.
"""

import asyncio
import json
import time

import pytest

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KRAFT
from benchmarks.beside_kafka.rows import OURS
from benchmarks.groups.brokers import TOPIC, Coordinator
from benchmarks.groups.classic_assignments import COOPERATIVE, EAGER
from benchmarks.groups.crowd import CONSUMER, Crowd
from benchmarks.groups.fetches import Ownership, Pauses
from benchmarks.groups.members import Watched
from integration_tests.support.cluster_support import HEALED_S, running_cluster
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

PARTITIONS = 8
MEMBERS = 4
SETTINGS = (
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.initial.rebalance.delay.ms", "500"),
)
HAS_KAFKA = (default_folder() / KRAFT.folder).is_dir()


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Coordinator:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1, settings=SETTINGS) as made:
        found = Coordinator.ready(OURS, made.bootstrap_servers, [])
        found.create(PARTITIONS)
        yield found


async def left(broker: Coordinator, protocol: str) -> float:
    """Return the longest pause of partitions that kept their owner while one left."""
    ownership, pauses = Ownership(PARTITIONS), Pauses(PARTITIONS)
    watched = Watched(protocol, TOPIC, PARTITIONS, ownership, pauses)
    async with Crowd(broker.address, watched, protocol, fetches=True) as crowd:
        for _ in range(MEMBERS):
            await crowd.start()
        await crowd.wait_until(lambda: ownership.is_shared_by(MEMBERS), "shared", HEALED_S)
        await crowd.stay(1.5)
        pauses.begin(ownership.owners())
        await crowd.leave()
        await crowd.wait_until(lambda: ownership.is_shared_by(MEMBERS - 1), "shared", HEALED_S)
        return pauses.longest_s(ownership.owners(), time.monotonic())


@pytest.mark.parametrize("protocol", [CONSUMER, EAGER, COOPERATIVE])
def test_members_share_a_topic_and_share_it_again_when_one_leaves(broker, protocol):
    pause_s = asyncio.run(left(broker, protocol))
    assert 0 < pause_s < HEALED_S


@in_full
@pytest.mark.skipif(not HAS_KAFKA, reason="`headrace bench groups` has not fetched Kafka")
def test_every_row_has_the_figures_of_both_sides(tmp_path, capsys):
    small = ["--members", "4", "--partitions", "8", "--rounds", "1", "--many", "20"]
    small += ["--seconds", "5", "--classic-members", "1000", "--dir", str(tmp_path)]
    assert main(["bench", "groups", *small, "--beside-kafka", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert {each["row"] for each in results} == {"rebalance", "heartbeats", "joins", "restarts"}
    for each in results:
        is_ours = each["row"] == "rebalance" and each["what"].startswith("classic")
        assert (each["kafka"] is None) == is_ours, each["what"]
    assert not list(tmp_path.iterdir()), "it cleans up after itself"
