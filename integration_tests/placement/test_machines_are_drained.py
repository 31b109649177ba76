"""Six brokers on three machines: one machine is cordoned, drained, and gets its share again."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.placement.replica_lists import replica_lists
from integration_tests.support.brokers_by_hand import BrokersByHand, brokers_by_hand
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import CLIENT_TIMEOUT_MS
from integration_tests.support.command_line import fail, succeed

LISTENER = "PLAINTEXT"
BROKERS = range(1, 7)


def machine(broker: int) -> str:
    return f"machine-{(broker - 1) // 2}"


@pytest.fixture
def brokers(tmp_path) -> Iterator[BrokersByHand]:
    with brokers_by_hand(tmp_path, [LISTENER]) as started:
        for broker in BROKERS:
            started.start(broker, {"broker.host.name": machine(broker)}, is_waited_for=False)
        for broker in BROKERS:
            started.wait_until_joined(broker)
        yield started


def machines_of(client: AdminClient) -> set[str]:
    """The machines of all replicas; no partition has two on one."""
    found: set[str] = set()
    for tp, replicas in replica_lists(client).items():
        names = [machine(broker) for broker in replicas]
        assert len(set(names)) == len(names), tp
        found.update(names)
    return found


def create(topic: str, partitions: int, servers: tuple[str, str]) -> None:
    numbers = ("--partitions", partitions, "--replication-factor", 2)
    succeed("topics", "create", topic, *servers, *numbers)


def test_a_machine_is_emptied_and_gets_its_share_again(brokers, tmp_path):
    servers = ("--bootstrap-server", brokers.bootstrap(LISTENER))
    settings = {"socket.timeout.ms": CLIENT_TIMEOUT_MS, "log_level": 0}
    client = AdminClient({**settings_for(brokers.bootstrap(LISTENER)), **settings})
    create("two", 12, servers)
    rows = json.loads(succeed("cordon", "machine-0", *servers, "--json"))
    assert [(row["broker"], row["is_cordoned"], row["changed"]) for row in rows] == [
        (1, True, True),
        (2, True, True),
    ]
    again = succeed("cordon", "machine-0", *servers)
    assert again.count("cordoned, as before") == 2
    create("others", 4, servers)
    others = [
        replicas for (topic, _), replicas in replica_lists(client).items() if topic == "others"
    ]
    assert {broker for replicas in others for broker in replicas} <= {3, 4, 5, 6}
    succeed("drain", "machine-0", *servers, "--state", tmp_path / "drain.json")
    assert machines_of(client) == {"machine-1", "machine-2"}

    state = ("--state", tmp_path / "other.json")
    before = replica_lists(client)
    refused = fail("drain", "machine-1", *servers, *state)
    assert "would be left with 1 of 2 replicas on machines of their own" in refused
    assert replica_lists(client) == before
    assert not (tmp_path / "other.json").exists()

    rows = json.loads(succeed("uncordon", "machine-0", *servers, "--json"))
    assert [row["is_cordoned"] for row in rows] == [False, False]
    moves = ("--by", "replicas,leaders", "--tolerance", 0, "--state", tmp_path / "moves.json")
    shown = json.loads(succeed("rebalance", *servers, *moves, "--json"))
    after = {row["machine"]: row["replicas_after"] for row in shown["machines"]}
    assert sum(after.values()) == 32
    assert max(after.values()) <= 12
    succeed("rebalance", *servers, *moves, "--apply")
    counts = dict.fromkeys(BROKERS, 0)
    for replicas in replica_lists(client).values():
        for broker in replicas:
            counts[broker] += 1
    assert max(counts.values()) - min(counts.values()) <= 1
    assert machines_of(client) == {"machine-0", "machine-1", "machine-2"}
