"""R-CTL8: a partition moves to other brokers in the documented order, whatever dies on the way."""

import json
from collections.abc import Iterator

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_partitions
from storage_engine.tests.broker.controller.reassigning import TP, Moving
from storage_engine.zookeeper.admin_znodes import ReassignPartitionsZNode

OLD, NEW = (1, 2, 3), (4, 5, 6)
ALL = OLD + NEW
SECOND = TopicPartition("t", 1)


@pytest.fixture
def cluster(tmp_path) -> Iterator[Moving]:
    made = Moving(tmp_path)
    try:
        made.create(OLD, OLD)
        for number in range(5):
            made.produced(TP, b"record %d" % number)
        made.wait_in_sync(TP, *OLD)
        made.steps.clear()
        yield made
    finally:
        made.close()


def without_growth(steps) -> list:
    """The documented table has one line for the time in which replicas join one by one."""
    kept = []
    for assigned, leader, isr in steps:
        if assigned == ALL and leader == 1 and frozenset(OLD) < isr < frozenset(ALL):
            continue
        kept.append((assigned, leader, set(isr)))
    return kept


def test_the_documented_table_is_what_zookeeper_shows(cluster):
    cluster.ask_by_node({TP: NEW})
    cluster.wait_done(NEW)
    assert without_growth(cluster.steps) == [
        (OLD, 1, set(OLD)),
        (ALL, 1, set(OLD)),
        (ALL, 1, set(ALL)),
        (ALL, 4, set(ALL)),
        (ALL, 4, set(NEW)),
        (NEW, 4, set(NEW)),
    ]
    assert cluster.holders() == set(NEW)
    assert cluster.holders(SECOND) == set(OLD)
    cluster.produced(TP, b"after")
    cluster.loop.run_until(lambda: len({cluster.contents(b) for b in NEW}) == 1)
    assert all(b"record 4" in cluster.contents(b) and b"after" in cluster.contents(b) for b in NEW)


def test_the_api_ends_in_the_same_state_as_the_node(cluster):
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    assert cluster.ongoing() == {0: (list(ALL), list(NEW), list(OLD))}
    cluster.wait_done(NEW)
    assert cluster.ongoing() == {}
    assert cluster.holders() == set(NEW)
    raw = json.loads(cluster.zookeeper.data("/brokers/topics/t"))
    assert raw["partitions"] == {"0": [4, 5, 6], "1": [1, 2, 3]}
    assert set(raw) == {"version", "partitions", "topic_id"}


def test_one_that_is_added_while_another_runs_is_done_too(cluster):
    cluster[6].kill()
    cluster.loop.run_until(lambda: 6 not in cluster.controller.metadata.brokers)
    cluster[6].start()
    assert cluster.alter({TP: (4, 5)}) == {0: ErrorCode.NONE}
    assert cluster.alter({SECOND: (3, 1, 2, 4)}) == {1: ErrorCode.NONE}
    cluster.wait_done((4, 5))
    cluster.wait_done((3, 1, 2, 4), SECOND)
    assert (cluster.holders(), cluster.holders(SECOND)) == ({4, 5}, {1, 2, 3, 4})


def test_another_order_of_the_same_replicas_takes_one_step(cluster):
    assert cluster.alter({TP: (3, 2, 1)}) == {0: ErrorCode.NONE}
    cluster.wait_done((3, 2, 1))
    assert cluster.elect(0) == {0: ErrorCode.NONE}
    assert cluster.state(TP).leader == 3


def test_bad_entries_are_dropped_and_the_others_go_on(cluster, caplog):
    entries = [
        {"topic": "t", "partition": 0, "replicas": [4, 5]},
        {"topic": "t", "partition": 1, "replicas": [1, 9]},
        {"topic": "t", "partition": 7, "replicas": [1]},
        {"topic": "nowhere", "partition": 0, "replicas": [1]},
        {"topic": "t", "partition": 2, "replicas": []},
        {"topic": "t", "partition": 3, "replicas": [1, 1]},
        "rubbish",
    ]
    content = json.dumps({"version": 1, "partitions": entries}).encode()
    cluster.zookeeper.put(ReassignPartitionsZNode.PATH, content)
    cluster.wait_done((4, 5))
    assert cluster.assigned(SECOND) == OLD
    dropped = {r.getMessage() for r in caplog.records if "dropped" in r.getMessage()}
    assert len(dropped) == 6
    assert any("t-1 to [1, 9] dropped: names brokers that are not alive: 9" in m for m in dropped)


def test_a_node_that_is_no_json_is_taken_away(cluster):
    cluster.zookeeper.put(ReassignPartitionsZNode.PATH, b"{rubbish")
    cluster.loop.run_until(lambda: cluster.zookeeper.data(ReassignPartitionsZNode.PATH) is None)
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster.wait_done(NEW)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_the_api_refuses_what_is_impossible(cluster, target, code):
    assert cluster.alter({TP: target}) == {0: code}
    assert cluster.alter({TopicPartition("t", 9): target}) == {
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert cluster.ongoing() == {}


def test_a_dead_target_is_waited_for(cluster):
    cluster[4].loop.kill()  # it follows nothing, but is registered
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster[4].kill()
    cluster.loop.run_for(30_000)
    assert cluster.ongoing() == {0: (list(ALL), list(NEW), list(OLD))}
    assert cluster.holders() == {1, 2, 3, 5, 6}
    cluster[4].start()
    cluster.wait_done(NEW)
    assert cluster.holders() == set(NEW)


def test_one_with_a_dead_target_is_cancelled(cluster):
    cluster[4].loop.kill()
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster[4].kill()
    cluster.wait_in_sync(TP, 1, 2, 3, 5, 6)
    assert cluster.alter({TP: None}) == {0: ErrorCode.NONE}
    cluster.wait_done(OLD)
    assert cluster.holders() == set(OLD)
    cluster[4].start()
    cluster.loop.run_for(10_000)
    assert cluster.holders() == set(OLD)
    assert cluster.ongoing() == {}


def test_a_cancellation_does_not_wait_for_a_dead_original(cluster):
    cluster[4].loop.kill()
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster[4].kill()
    cluster[3].kill()
    cluster.wait_in_sync(TP, 1, 2, 5, 6)
    assert cluster.alter({TP: None}) == {0: ErrorCode.NONE}
    cluster.loop.run_until(lambda: cluster.is_done(OLD))
    assert set(cluster.state(TP).isr) == {1, 2}
    cluster[3].start()
    cluster.wait_in_sync(TP, *OLD)


def test_old_replicas_on_a_dead_broker_are_not_waited_for_and_vanish_when_it_returns(cluster):
    cluster[3].kill()
    cluster.wait_in_sync(TP, 1, 2)
    cluster.ask_by_node({TP: NEW})
    cluster.wait_done(NEW)
    cluster[3].start()
    cluster.loop.run_until(lambda: TP not in cluster[3].logs.logs)
    cluster.wait_in_sync(SECOND, *OLD)
    assert cluster.holders() == set(NEW)


def test_the_leader_dies_on_the_way(cluster):
    cluster.ask_by_node({TP: NEW})
    cluster.loop.run_until(lambda: cluster.assigned(TP) == ALL)
    cluster[cluster.state(TP).leader].kill(session_ends_at_once=True)
    cluster.wait_done(NEW)
    assert all(b"record 4" in cluster.contents(b) for b in NEW)


def test_a_topic_is_deleted_in_the_middle(cluster):
    cluster[4].loop.kill()
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster[4].kill()
    cluster.loop.run_for(2000)
    answers = cluster.delete_topic("t", timeout_ms=60_000)
    cluster[4].start()
    assert cluster.answer(answers).responses[0].error_code == 0
    assert cluster.holders() == set()
    assert cluster.zookeeper.data(ReassignPartitionsZNode.PATH) is None


def test_a_topic_does_not_grow_while_it_is_on_the_move(cluster):
    cluster[4].loop.kill()
    assert cluster.alter({TP: NEW}) == {0: ErrorCode.NONE}
    cluster[4].kill()
    cluster.loop.run_until(lambda: cluster.assigned(TP) == ALL)
    row = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic
    request = create_partitions.CreatePartitionsRequest(
        topics=[row(name="t", count=3, assignments=None)], timeout_ms=5000, validate_only=False
    )
    answer = cluster.answer(cluster.ask_controller(create_partitions.API, 2, request))
    assert answer.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    cluster[4].start()
    cluster.wait_done(NEW)
