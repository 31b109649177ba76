"""`headrace drain` under a steady producer: whatever is killed on the way, nothing is lost or
doubled, no send fails, and the broker has no replica at the end."""

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from integration_tests.placement.killed_command import run_and_kill
from integration_tests.placement.replica_lists import (
    folders_of,
    on_broker,
    replica_lists,
    setting,
)
from integration_tests.support.cluster_support import (
    admin,
    make_topic,
    make_whole,
    running_cluster,
    wait_until,
)
from integration_tests.support.command_line import fail, start, succeed
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from storage_engine.client.admin.reassignment import list_reassignments
from storage_engine.client.cluster import Cluster
from storage_engine.tests.sampling import ALL_FAULTS

PARTITIONS = 6
SLOW = ("--throttle", "1000")
"""A move does not end within a test: the log is longer than the first fetch, which is not held
back."""
FAST = ("--throttle", "100000000")
PADDING = 2000
BROKER, TOPIC = "broker", "topic"


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    settings = (("auto.leader.rebalance.enable", "false"), ("min.insync.replicas", "2"))
    with running_cluster(tmp_path_factory.mktemp("four"), brokers=4, settings=settings) as running:
        yield running


@pytest.fixture
def made(four, request):
    """A topic of the test's own: broker 1 leads two of its partitions. It is gone afterwards, and
    broker 1 is as any other."""
    topic = request.node.name.partition("[")[0].removeprefix("test_")[:40]
    topic = f"{topic}-{abs(hash(request.node.name)) % 10_000}"
    orders = ([1, 2, 3], [2, 1, 4], [3, 4, 1], [1, 3, 4], [4, 2, 3], [2, 3, 1])
    assignment = [orders[number] for number in range(PARTITIONS)]
    make_topic(admin(four), NewTopic(topic, PARTITIONS, replica_assignment=assignment))
    yield topic
    make_whole(four)
    succeed("topics", "delete", topic, *servers(four))
    succeed("uncordon", 1, *servers(four))


def servers(four) -> tuple[str, str]:
    return "--bootstrap-server", four.bootstrap_servers


def drain_of(four, tmp_path: Path, *more: object) -> tuple[object, ...]:
    state = ("--state", tmp_path / "drain.json")
    return ("drain", 1, *servers(four), *state, "--wave-partitions", 2, *more)


def check_drained(four, topic: str, *, cordon: str = "*") -> None:
    client = admin(four)
    wait_until(lambda: not on_broker(client, 1), "broker 1 has no replica")
    for (name, _number), replicas in replica_lists(client).items():
        if name == topic:
            assert sorted(replicas) == [2, 3, 4]
    wait_until(lambda: not folders_of(four, 1, {topic}), "broker 1 has no files of them")
    assert setting(four, BROKER, "1", "cordoned.log.dirs") == cordon
    for key in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        assert setting(four, TOPIC, topic, key) == ""


def test_a_drained_broker_has_no_replica_and_gets_none(four, made, tmp_path):
    before = replica_lists(admin(four))
    shown = succeed(*drain_of(four, tmp_path, "--dry-run"))
    assert "nothing was changed" in shown
    assert replica_lists(admin(four)) == before
    assert not list(tmp_path.iterdir())
    with SteadyProducer(four.bootstrap_servers, made, padding=PADDING) as producer:
        wait_until(lambda: len(producer.acknowledged) > 1000, "records are acknowledged")
        done = json.loads(succeed(*drain_of(four, tmp_path, "--json")))
        reached = len(producer.acknowledged)
        wait_until(lambda: len(producer.acknowledged) > reached + 100, "records after it")
        producer.finish()
    assert done["brokers"] == [1]
    assert {(row["topic"], row["partition"]) for row in done["partitions"]} == {
        tp for tp, replicas in before.items() if 1 in replicas
    }
    check_drained(four, made)
    check_kept(four.bootstrap_servers, made, producer)
    make_topic(admin(four), NewTopic(f"{made}-new", 8, 3))
    assert not on_broker(admin(four), 1)
    assert "drained and cordoned" in succeed(*drain_of(four, tmp_path))
    succeed("topics", "delete", f"{made}-new", *servers(four))


def test_the_broker_is_killed_while_it_is_drained(four, made, tmp_path):
    with (
        SteadyProducer(four.bootstrap_servers, made, padding=PADDING) as producer,
        Cluster(four.bootstrap_servers) as client,
    ):
        wait_until(lambda: len(producer.acknowledged) > 2000, "records are acknowledged")
        drain = start(*drain_of(four, tmp_path, "--wave-partitions", 1))
        wait_until(lambda: list_reassignments(client), "replicas move")
        four.kill_broker(1)
        _, errors = drain.communicate(timeout=120)
        assert drain.returncode == 0, errors
        producer.finish()
    assert four.start_broker(1)
    check_drained(four, made)
    check_kept(four.bootstrap_servers, made, producer)


KILLS = [
    ("wave", 2, "after"),
    ("election", 1, "before"),
    ("state", 1, "after"),
    ("cordon", 1, "after"),
    ("wave", 1, "before"),
    ("wave", 4, "after"),
    ("state", 2, "before"),
]


@pytest.mark.parametrize(("moment", "turn", "side"), KILLS if ALL_FAULTS else KILLS[:2])
def test_a_killed_command_goes_on_when_it_is_run_again(four, made, tmp_path, moment, turn, side):
    with SteadyProducer(four.bootstrap_servers, made, padding=PADDING) as producer:
        wait_until(lambda: len(producer.acknowledged) > 500, "records are acknowledged")
        before = replica_lists(admin(four))
        run_and_kill(moment, turn, side, *drain_of(four, tmp_path, *FAST))
        succeed(*drain_of(four, tmp_path))
        check_drained(four, made)
        # What was kept first is what is taken back.
        succeed(*drain_of(four, tmp_path, "--undo"))
        assert replica_lists(admin(four)) == before
        producer.finish()
    assert setting(four, BROKER, "1", "cordoned.log.dirs") == ""
    check_kept(four.bootstrap_servers, made, producer)


def test_it_is_undone_in_the_middle(four, made, tmp_path):
    before = replica_lists(admin(four))
    with (
        SteadyProducer(four.bootstrap_servers, made, padding=PADDING) as producer,
        Cluster(four.bootstrap_servers) as client,
    ):
        wait_until(lambda: len(producer.acknowledged) > 2000, "records are acknowledged")
        drain = start(*drain_of(four, tmp_path, *SLOW))
        wait_until(lambda: list_reassignments(client), "replicas move")
        refused = fail(*drain_of(four, tmp_path, "--undo"))
        assert "another command is at work with" in refused
        drain.send_signal(signal.SIGKILL)
        drain.communicate()
        run_and_kill("wave", 1, "after", *drain_of(four, tmp_path, "--undo"))
        told = fail(*drain_of(four, tmp_path))
        assert told.startswith("'headrace drain --undo' has not ended yet")
        # By who knows the file alone.
        succeed("drain", "--undo", "--state", tmp_path / "drain.json", *servers(four))
        assert replica_lists(admin(four)) == before
        assert list_reassignments(client) == {}
        producer.finish()
    assert setting(four, BROKER, "1", "cordoned.log.dirs") == ""
    assert setting(four, TOPIC, made, "leader.replication.throttled.replicas") == ""
    check_kept(four.bootstrap_servers, made, producer)


def test_a_dead_broker_is_drained(four, made, tmp_path):
    with SteadyProducer(four.bootstrap_servers, made) as producer:
        wait_until(lambda: len(producer.acknowledged) > 500, "records are acknowledged")
        four.kill_broker(1)

        def is_dead() -> bool:
            return 1 not in admin(four).list_topics(timeout=10).brokers

        wait_until(is_dead, "broker 1 is known to be dead")
        assert "broker 1: dead, and so not cordoned" in succeed(*drain_of(four, tmp_path))
        assert not on_broker(admin(four), 1)
        producer.finish()
    assert four.start_broker(1)
    check_drained(four, made, cordon="")
    check_kept(four.bootstrap_servers, made, producer)


def test_what_can_not_be_is_refused_before_anything_is_changed(four, made, tmp_path):
    make_topic(admin(four), NewTopic(f"{made}-four", 1, 4, config={"min.insync.replicas": "4"}))
    before = replica_lists(admin(four))
    refused = fail(*drain_of(four, tmp_path))
    assert refused.startswith(
        f"nothing was changed: {made}-four would be left with 3 of 4 replicas on machines of their "
        f"own, fewer than min.insync.replicas of {made}-four: add a machine"
    )
    unknown = fail("drain", "h9", *servers(four), "--state", tmp_path / "drain.json")
    assert unknown == (
        "there is no broker or host 'h9'; brokers are 1, 2, 3, 4; no broker has a broker.host.name"
    )
    assert "--undo needs the file" in fail(*drain_of(four, tmp_path, "--undo"))
    assert replica_lists(admin(four)) == before
    assert setting(four, BROKER, "1", "cordoned.log.dirs") == ""
    succeed("topics", "delete", f"{made}-four", *servers(four))
