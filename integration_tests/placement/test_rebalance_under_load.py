"""`headrace rebalance` under a steady producer: what it shows is what it does, a kill of the
command loses nothing, and it takes back what it did."""

import json

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.placement.killed_command import run_and_kill
from integration_tests.placement.replica_lists import replica_lists
from integration_tests.support.cluster_support import (
    admin,
    make_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.command_line import fail, succeed
from integration_tests.support.steady_producer import SteadyProducer, check_kept

TOPIC = "uneven"
PARTITIONS = 8


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Broker 4 has nothing, and broker 1 leads all."""
    settings = (("auto.leader.rebalance.enable", "false"), ("min.insync.replicas", "2"))
    folder = tmp_path_factory.mktemp("uneven")
    with running_cluster(folder, brokers=4, settings=settings) as running:
        assignment = [[1, 2, 3]] * PARTITIONS
        make_topic(admin(running), NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment))
        yield running


def leaders(uneven) -> list[int]:
    found = admin(uneven).list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return [found[number].leader for number in range(PARTITIONS)]


def test_a_killed_rebalance_goes_on_and_is_taken_back(uneven, tmp_path):
    servers = ("--bootstrap-server", uneven.bootstrap_servers)
    state = ("--state", tmp_path / "moves.json")
    command = ("rebalance", *servers, "--by", "replicas,leaders", "--tolerance", 0)
    before = replica_lists(admin(uneven))
    with SteadyProducer(uneven.bootstrap_servers, TOPIC, padding=2000) as producer:
        wait_until(lambda: len(producer.acknowledged) > 1000, "records are acknowledged")
        shown = json.loads(succeed(*command, "--json"))
        assert replica_lists(admin(uneven)) == before
        assert {row["broker"]: row["replicas_after"] for row in shown["brokers"]} == dict.fromkeys(
            (1, 2, 3, 4), PARTITIONS * 3 / 4
        )
        wave = (*state, "--wave-partitions", 2)
        run_and_kill("wave", 2, "after", *command, *wave, "--apply")
        done = json.loads(succeed(*command, *wave, "--apply", "--json"))
        for row in done["partitions"]:
            now = replica_lists(admin(uneven))[row["topic"], row["partition"]]
            assert now == row["replicas"]
        assert done["partitions"] == shown["partitions"]
        wait_until(
            lambda: sorted(leaders(uneven)) == [1, 1, 2, 2, 3, 3, 4, 4], "each broker leads two"
        )
        again = json.loads(succeed(*command, *wave, "--apply", "--json"))
        assert again["partitions"] == []
        succeed(*command, *state, "--undo")
        assert replica_lists(admin(uneven)) == before
        wait_until(lambda: set(leaders(uneven)) == {1}, "broker 1 leads all")
        producer.finish()
    check_kept(uneven.bootstrap_servers, TOPIC, producer)


def test_rates_are_measured_and_wrong_loads_are_told(uneven):
    servers = ("--bootstrap-server", uneven.bootstrap_servers)
    with SteadyProducer(uneven.bootstrap_servers, TOPIC, padding=2000) as producer:
        wait_until(lambda: len(producer.acknowledged) > 500, "records are acknowledged")
        shown = succeed("rebalance", *servers, "--by", "rates", "--sample", 1, "--json")
        rates = {row["broker"]: row["rates_before"] for row in json.loads(shown)["brokers"]}
        producer.finish()
    assert min(rates[1], rates[2], rates[3]) > 1000
    assert rates[4] == 0
    wrong = fail("rebalance", *servers, "--undo", "--apply", status=2)
    assert wrong == "--undo and --apply do not go together"
