"""R-CTL8, R-TOOL4: from {1, 2, 3} to {4, 5, 6} on six real brokers, as
ZooKeeper's own log of transactions tells it; then with the controller killed on the way."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from integration_tests.controller.zookeeper_history import writes
from integration_tests.support.cluster_support import (
    admin,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import fail, succeed
from integration_tests.support.steady_producer import SteadyProducer, check_kept

OLD, NEW = (1, 2, 3), (4, 5, 6)
ALL = OLD + NEW


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    settings = (("auto.leader.rebalance.enable", "false"),)
    folder = tmp_path_factory.mktemp("six")
    # The log of a ZooKeeper of its own is read.
    with running_cluster(folder, brokers=6, settings=settings, has_zookeeper=True) as running:
        yield running


def create(six, topic: str) -> None:
    new = NewTopic(topic, 1, replica_assignment=[list(OLD)], config={"min.insync.replicas": "2"})
    client = admin(six)
    client.create_topics([new], request_timeout=60)[topic].result(90)


def plan_file(folder: Path, topic: str, replicas) -> Path:
    path = folder / "plan.json"
    entry = {"topic": topic, "partition": 0, "replicas": list(replicas)}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return path


def history(six, topic: str) -> list[tuple[tuple[int, ...], int, set[int]]]:
    """(assigned replicas, leader, ISR), each time one of them changed."""
    base = f"/brokers/topics/{topic}"
    assigned: tuple[int, ...] = ()
    led: tuple[int, tuple[int, ...]] | None = None
    steps: list[tuple[tuple[int, ...], int, set[int]]] = []
    for path, data in writes(six.directory):
        if path == base:
            assigned = tuple(json.loads(data)["partitions"]["0"])
        elif path == f"{base}/partitions/0/state":
            state = json.loads(data)
            led = state["leader"], tuple(state["isr"])
        else:
            continue
        if led is not None and (not steps or steps[-1] != (assigned, led[0], set(led[1]))):
            steps.append((assigned, led[0], set(led[1])))
    return steps


def documented(steps) -> list:
    """The table has one line for the time in which the new replicas join, one after another."""
    return [
        step
        for step in steps
        if not (step[0] == ALL and step[1] == 1 and set(OLD) < step[2] < set(ALL))
    ]


def verify_until_done(six, plan: Path) -> None:
    def done() -> bool:
        output = succeed("reassign", "verify", *bootstrap(six), "--reassignment-json-file", plan)
        return "in progress" not in output and "completed" in output

    wait_until(done, "the reassignment is completed", timeout_s=120)


def bootstrap(six) -> tuple[str, str]:
    return "--bootstrap-server", six.bootstrap_servers


def folders(six, topic: str) -> set[int]:
    return {
        broker.id
        for broker in six.state.brokers
        if (six.directory / broker.data_dir / f"{topic}-0").exists()
    }


def test_the_documented_table_is_what_zookeeper_has_written(six, tmp_path):
    create(six, "table")
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "table"}], "version": 1}')
    generated = succeed(
        *("reassign", "generate", *bootstrap(six), "--topics-to-move-json-file", topics),
        *("--broker-list", "4,5,6", "--json"),
    )
    proposed = json.loads(generated)["proposed"]["partitions"]
    assert sorted(proposed[0]["replicas"]) == list(NEW)

    plan = plan_file(tmp_path, "table", NEW)
    refused = fail("reassign", "verify", *bootstrap(six), "--reassignment-json-file", plan)
    assert refused == (
        "these partitions are not as planned, and no reassignment of them is in progress: table-0"
    )
    with SteadyProducer(six.bootstrap_servers, "table") as producer:
        wait_until(lambda: len(producer.acknowledged) > 100, "records are acknowledged")
        succeed("reassign", "execute", *bootstrap(six), "--reassignment-json-file", plan)
        verify_until_done(six, plan)
        reached = len(producer.acknowledged)
        wait_until(lambda: len(producer.acknowledged) > reached + 100, "records after it")
        producer.finish()
    assert documented(history(six, "table")) == [
        (OLD, 1, set(OLD)),
        (ALL, 1, set(OLD)),
        (ALL, 1, set(ALL)),
        (ALL, 4, set(ALL)),
        (ALL, 4, set(NEW)),
        (NEW, 4, set(NEW)),
    ]
    wait_until(lambda: folders(six, "table") == set(NEW), "old replicas have no files")
    check_kept(six.bootstrap_servers, "table", producer)


def test_it_is_finished_by_the_next_controller(six, tmp_path):
    create(six, "killed")
    client = admin(six)
    # At 1 KB/s it is not over when its controller dies: the log is longer than the first fetch,
    # which is not held back.
    plan = plan_file(tmp_path, "killed", NEW)
    with SteadyProducer(six.bootstrap_servers, "killed", padding=2000) as producer:
        wait_until(lambda: len(producer.acknowledged) > 2000, "records are acknowledged")
        succeed(
            *("reassign", "execute", *bootstrap(six), "--reassignment-json-file", plan),
            *("--throttle", "1000"),
        )
        wait_until(
            lambda: ALL in [assigned for assigned, *_ in history(six, "killed")],
            "the first step is done",
        )
        assert history(six, "killed")[-1][0] == ALL
        assert history(six, "killed")[-1][2] < set(ALL)
        controller = client.list_topics(timeout=60).controller_id
        six.kill_broker(controller)

        def another() -> bool:
            return client.list_topics(timeout=60).controller_id not in (-1, controller)

        wait_until(another, "another controller")
        listed = succeed("reassign", "verify", *bootstrap(six), "--reassignment-json-file", plan)
        assert "in progress" in listed
        assert six.start_broker(controller)
        succeed(
            *("reassign", "execute", *bootstrap(six), "--reassignment-json-file", plan),
            *("--throttle", "50000000"),
        )
        verify_until_done(six, plan)
        reached = len(producer.acknowledged)
        wait_until(lambda: len(producer.acknowledged) > reached + 100, "records after it")
        producer.finish()
    assert history(six, "killed")[-1][0] == NEW
    assert history(six, "killed")[-1][2] <= set(NEW)
    wait_for_isr(client, "killed", 3)
    wait_until(lambda: folders(six, "killed") == set(NEW), "old replicas have no files")
    check_kept(six.bootstrap_servers, "killed", producer)
    describe = ("topics", "describe", "killed", *bootstrap(six), "--json")
    wait_until(lambda: "0:1" not in succeed(*describe), "the throttle is there no more")


def test_other_peoples_admin_clients_do_the_same(six, tmp_path):
    create(six, "foreign")
    servers = six.bootstrap_servers.split(",")
    partition = KafkaPartition("foreign", 0)
    client = KafkaAdminClient(bootstrap_servers=servers)
    try:
        assert client.alter_partition_reassignments({partition: [3, 4]}) == {partition: None}

        wait_until(lambda: client.list_partition_reassignments() == {}, "it is done")
        confluent = admin(six)
        wait_until(
            lambda: list(partition_metadata(confluent, "foreign").replicas) == [3, 4],
            "the partition has other replicas",
        )
        refused = client.alter_partition_reassignments({partition: None})
        assert "NoReassignmentInProgress" in str(refused[partition])
        assert client.alter_partition_reassignments({partition: [4, 3]}) == {partition: None}
        wait_until(lambda: client.list_partition_reassignments() == {}, "it is done")
        (broker,) = client.describe_log_dirs(brokers=[4])
        assert "foreign" in str(broker)
        # confluent-kafka 2.16 has the call too, but it fails before it sends anything.
        client.elect_leaders(0, {"foreign": [0]})
        wait_until(
            lambda: partition_metadata(confluent, "foreign").leader == 4, "the preferred one leads"
        )
    finally:
        client.close()
    output = succeed("elect-preferred", *bootstrap(six))
    assert "already" in output or "elected" in output
