"""Other programs write, copy and remove the nodes of topics that are in use: nothing acknowledged
goes, over failovers. Source: R-CTL5, R-CTL10, KIP-516."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller.deletion_requests import TOPICS_PER_MULTI
from storage_engine.core.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    topic_id_from_text,
    topic_id_to_text,
)
from storage_engine.protocol.apis import delete_topics
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from storage_engine.simulation.world.broker import SimulatedBroker
from storage_engine.simulation.world.cluster import SimulatedCluster
from storage_engine.simulation.world.zookeeper_session import SimulatedSession
from storage_engine.zookeeper.admin_znodes import (
    DeleteTopicsZNode,
    IsrChangeZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znodes import PartitionStateZNode, PartitionsZNode, TopicZNode

TP = TopicPartition("t", 0)
PATH = TopicZNode.path("t")
RECORDS = 5


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(tmp_path, min_insync_replicas="2", replica_lag_time_max_ms="2000")
    yield made
    made.close()


@pytest.fixture
def topic(cluster) -> SimulatedCluster:
    assert cluster.create_topic("t").error_code == 0
    for number in range(RECORDS):
        assert cluster.produced(TP, b"%d" % number) == number
    cluster.wait_in_sync(TP, 1, 2, 3)
    return cluster


def put(cluster: SimulatedCluster, path: str, content: dict[str, Any]) -> None:
    cluster.zookeeper.put(path, json.dumps(content).encode())


def fields(cluster: SimulatedCluster, path: str) -> dict[str, Any]:
    data = cluster.zookeeper.data(path)
    assert data is not None
    return json.loads(data)


def write_without_id(cluster: SimulatedCluster, path: str, more: dict[str, Any]) -> None:
    """As a program does that knows no ids."""
    node = fields(cluster, path)
    node.pop("topic_id", None)
    node["partitions"].update(more)
    put(cluster, path, node)


def remove(cluster: SimulatedCluster, path: str) -> None:
    """With all that is below."""
    below = (p for p in cluster.zookeeper.nodes if p == path or p.startswith(f"{path}/"))
    for node in sorted(below, reverse=True):
        cluster.zookeeper.drop(node)


def next_controller(cluster: SimulatedCluster) -> None:
    old = cluster.controller
    assert old is not None
    old.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)


def holds_everything(cluster: SimulatedCluster, tp: TopicPartition = TP) -> None:
    """Whoever leads next has it, and goes on where the last one ended."""
    next_controller(cluster)
    assert cluster.produced(tp, b"next") == RECORDS
    cluster.wait_in_sync(tp, 1, 2, 3)
    for broker in cluster.brokers:
        assert broker.logs.logs[tp].log_end_offset == RECORDS + 1
        assert not list(broker.logs.dirs.working_paths[0].glob("*-stray"))


@pytest.mark.parametrize("more", [{}, {"1": [2, 3, 1]}])
def test_a_topic_written_without_its_id_keeps_id_and_records(topic, more):
    topic_id = fields(topic, PATH)["topic_id"]
    write_without_id(topic, PATH, more)
    topic.loop.run_for(1000)
    assert fields(topic, PATH)["topic_id"] == topic_id
    holds_everything(topic)


def test_a_topic_written_with_another_id_keeps_id_and_records(topic):
    """It is the same node: no topic was made again."""
    topic_id = fields(topic, PATH)["topic_id"]
    put(topic, PATH, fields(topic, PATH) | {"topic_id": topic_id_to_text(uuid4())})
    topic.loop.run_for(1000)
    assert fields(topic, PATH)["topic_id"] == topic_id
    holds_everything(topic)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_topic_written_without_its_id_while_nobody_is_controller_keeps_its_records(
    topic, is_recorded
):
    """Without the record of an older version's cluster nobody can tell the id any more."""
    topic_id = fields(topic, PATH)["topic_id"]
    old = topic.controller
    old.kill(session_ends_at_once=True)
    write_without_id(topic, PATH, {})
    if not is_recorded:
        topic.zookeeper.put(PartitionsZNode.path("t"), b"")
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    old.start()
    topic.loop.run_for(5000)
    assert fields(topic, PATH).get("topic_id") == (topic_id if is_recorded else None)
    holds_everything(topic)


def test_an_older_versions_topic_gets_its_id_recorded(topic):
    record = topic.zookeeper.data(PartitionsZNode.path("t"))
    topic.zookeeper.put(PartitionsZNode.path("t"), b"")
    next_controller(topic)
    assert topic.zookeeper.data(PartitionsZNode.path("t")) == record


def test_a_record_of_an_earlier_topic_gives_no_id(topic):
    """Somebody made the topic again, with the node of its partitions copied from the old one."""
    topic_id = fields(topic, PATH)["topic_id"]
    record = topic.zookeeper.data(PartitionsZNode.path("t"))
    for broker in topic.brokers:
        broker.kill(session_ends_at_once=True)
    remove(topic, PATH)
    put(topic, PATH, {"version": 1, "partitions": {"0": [2, 3, 1]}})
    topic.zookeeper.put(PartitionsZNode.path("t"), record)
    for broker in topic.brokers:
        broker.start()
    assert topic.produced_when_there(TP, b"of the new topic") == 0
    assert fields(topic, PATH)["topic_id"] != topic_id


@pytest.mark.parametrize("gap_ms", [0, 1, 2, 3, 5, 50])
def test_a_topic_that_a_program_makes_and_enlarges_has_one_id(cluster, gap_ms):
    put(cluster, PATH, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    cluster.loop.run_for(gap_ms)
    put(cluster, PATH, {"version": 1, "partitions": {"0": [1, 2, 3], "1": [2, 3, 1]}})
    for number in range(RECORDS):
        assert cluster.produced_when_there(TP, b"r") == number
    holds_everything(cluster)


@pytest.mark.parametrize("gap_ms", [0, 1, 2, 3])
def test_a_topic_that_is_enlarged_as_soon_as_it_is_created_keeps_its_id(cluster, gap_ms):
    def on_write(path: str, before: bytes | None, _data: bytes | None) -> None:
        if path == PATH and before is None:
            cluster.loop.call_later(
                gap_ms, lambda: write_without_id(cluster, PATH, {"0": [1, 2, 3], "1": [2, 3, 1]})
            )

    cluster.zookeeper.on_write = on_write
    assert cluster.create_topic("t").error_code == 0
    cluster.zookeeper.on_write = None
    for number in range(RECORDS):
        assert cluster.produced_when_there(TP, b"r") == number
    holds_everything(cluster)


def test_a_copy_of_a_topics_node_is_not_served_under_the_topics_id(topic):
    """Neither by this controller nor by the next one; and whoever takes the id out of the copy
    makes a topic of it."""
    node = fields(topic, PATH)
    topic_id = topic_id_from_text(node["topic_id"])
    put(topic, TopicZNode.path("copy"), node)
    put(topic, TopicZNode.path("a-copy"), node)
    topic.loop.run_for(1000)
    for _ in range(2):
        for broker in topic.brokers:
            assert broker.metadata.topic_name(topic_id) == "t"
            assert "copy" not in broker.metadata
            assert "a-copy" not in broker.metadata
        next_controller(topic)
    write_without_id(topic, TopicZNode.path("copy"), {})
    assert topic.produced_when_there(TopicPartition("copy", 0), b"of its own") == 0
    assert fields(topic, TopicZNode.path("copy"))["topic_id"] != node["topic_id"]
    holds_everything(topic)


def test_a_deletion_by_id_does_not_mean_a_copy(topic):
    node = fields(topic, PATH)
    put(topic, TopicZNode.path("copy"), node)
    topic.loop.run_for(1000)
    state = delete_topics.DeleteTopicsRequest.DeleteTopicState(
        name=None, topic_id=topic_id_from_text(node["topic_id"])
    )
    request = delete_topics.DeleteTopicsRequest(topics=[state], topic_names=[], timeout_ms=30_000)
    answers = topic.ask_controller(delete_topics.API, 6, request)
    (deleted,) = topic.answer(answers).responses
    assert (deleted.name, deleted.error_code) == ("t", 0)
    assert PATH not in topic.zookeeper.nodes


def test_a_topic_that_was_renamed_in_zookeeper_is_known_by_its_id(topic):
    node = fields(topic, PATH)
    remove(topic, PATH)
    put(topic, TopicZNode.path("renamed"), node)
    assert topic.produced_when_there(TopicPartition("renamed", 0), b"first") == 0
    topic_id = topic_id_from_text(node["topic_id"])
    assert topic[1].metadata.topic_name(topic_id) == "renamed"
    next_controller(topic)
    for broker in topic.brokers:
        assert broker.metadata.topic_name(topic_id) == "renamed"


def test_a_name_that_goes_takes_no_id_that_another_topic_has_now():
    def told(topic: str) -> UpdateMetadataPartition:
        nobody = BrokerId(1)
        return UpdateMetadataPartition(
            topic=topic,
            partition=0,
            leader=nobody,
            leader_epoch=LeaderEpoch(0),
            isr=[nobody],
            replicas=[nobody],
            topic_id=shared,
        )

    shared, metadata = uuid4(), MetadataCache()
    order = UpdateMetadataRequest(
        controller_id=BrokerId(1), controller_epoch=ControllerEpoch(1), brokers=[]
    )
    metadata.update(replace(order, partitions=[told("former")]))
    metadata.update(replace(order, partitions=[told("renamed")]))
    metadata.update(replace(order, removed_topics=["former"]))
    assert metadata.topic_name(shared) == "renamed"


@pytest.mark.parametrize("gap_ms", [0, 1, 1000])
@pytest.mark.parametrize("topic_id", [None, topic_id_to_text(UUID(int=7))])
def test_a_topic_that_was_removed_and_made_again_by_hand_is_served(topic, gap_ms, topic_id):
    """By the controller that knew the old one, which had more partitions; then its leader dies."""
    assert topic.create_topic("gone", 2).error_code == 0
    tp, path = TopicPartition("gone", 0), TopicZNode.path("gone")
    assert topic.produced(tp, b"of the old topic") == 0
    remove(topic, path)
    topic.loop.run_for(gap_ms)
    node = {"version": 1, "partitions": {"0": [1, 2, 3]}}
    put(topic, path, node if topic_id is None else node | {"topic_id": topic_id})
    for number in range(RECORDS):
        assert topic.produced_when_there(tp, b"of the new topic") == number
    topic.wait_in_sync(tp, 1, 2, 3)
    for broker in topic.brokers:
        assert list(broker.metadata.partitions("gone")) == [0]
    leader = topic[topic.state(tp).leader]
    leader.kill(session_ends_at_once=True)
    assert topic.produced(tp, b"under the next leader") == RECORDS
    leader.start()
    answers = topic.delete_topic("gone")
    assert topic.answer(answers).responses[0].error_code == 0


def test_a_deletion_goes_on_when_the_topics_node_can_be_read_again(topic):
    """It waits for a dead broker, and the next controller finds garbage in the node."""
    dead = next(broker for broker in topic.brokers if broker is not topic.controller)
    dead.kill(session_ends_at_once=True)
    topic.loop.run_for(1000)
    topic.answer(topic.delete_topic("t", timeout_ms=1000))
    good = topic.zookeeper.data(PATH)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    topic.zookeeper.put(PATH, b"garbage")
    old.start()
    topic.loop.run_until(lambda: topic.controller is not None)
    topic.loop.run_for(3000)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == ["t"]
    topic.zookeeper.put(PATH, good)
    dead.start()
    topic.loop.run_until(lambda: PATH not in topic.zookeeper.nodes)
    topic.loop.run_for(1000)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == []
    assert all(TP not in broker.logs.logs for broker in topic.brokers)


def test_a_deletion_ends_when_the_unreadable_node_is_gone(topic):
    topic.zookeeper.put(TopicZNode.path("odd"), b"garbage")
    topic.loop.run_for(1000)
    topic.zookeeper.make_parents(DeleteTopicsZNode.topic_path("odd"))
    topic.zookeeper.put(DeleteTopicsZNode.topic_path("odd"), b"")
    next_controller(topic)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == ["odd"]
    topic.zookeeper.drop(TopicZNode.path("odd"))
    topic.loop.run_until(lambda: topic.zookeeper.children(DeleteTopicsZNode.PATH) == [])


def test_a_reassignment_begins_when_the_topics_node_can_be_read_again(topic):
    good = topic.zookeeper.data(PATH)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    topic.zookeeper.put(PATH, b"garbage")
    move = {"topic": "t", "partition": 0, "replicas": [3, 2]}
    put(topic, ReassignPartitionsZNode.PATH, {"version": 1, "partitions": [move]})
    topic.loop.run_until(lambda: topic.controller not in (None, old))
    topic.loop.run_for(3000)
    old.start()
    topic.zookeeper.put(PATH, good)
    topic.loop.run_until(lambda: topic.zookeeper.data(ReassignPartitionsZNode.PATH) is None)
    assert fields(topic, PATH)["partitions"] == {"0": [3, 2]}


STATE = PartitionStateZNode.path("t", 0)


def next_leader(cluster: SimulatedCluster) -> None:
    """The present one is killed, and started again."""
    leader = next(b for b in cluster.brokers if b.up and is_led_by(b))
    leader.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: any(b.up and is_led_by(b) for b in cluster.brokers))
    leader.start()
    cluster.loop.run_for(5000)


def is_led_by(broker: SimulatedBroker) -> bool:
    partition = broker.replicas.get(TP)
    return partition is not None and partition.leader is not None


def lead_elsewhere_than_controller(cluster: SimulatedCluster) -> None:
    if is_led_by(cluster.controller):
        next_controller(cluster)
        cluster.wait_in_sync(TP, 1, 2, 3)
    assert not is_led_by(cluster.controller)


@pytest.mark.parametrize("failover", [False, True])
def test_a_partition_whose_node_is_there_before_its_state_is_led(topic, failover):
    path = PartitionStateZNode.partition_path("tool", 0)
    topic.zookeeper.make_parents(path)
    topic.zookeeper.put(path, b"")
    if failover:
        topic.controller.kill(session_ends_at_once=True)
    put(topic, TopicZNode.path("tool"), {"version": 1, "partitions": {"0": [1, 2, 3]}})
    assert topic.produced_when_there(TopicPartition("tool", 0), b"first") == 0


def test_a_partition_whose_state_was_removed_gets_another_leader(topic):
    lead_elsewhere_than_controller(topic)
    topic.zookeeper.drop(STATE)
    next_leader(topic)
    holds_everything(topic)


def test_a_leader_has_a_state_that_was_removed_made_again(topic):
    """It finds that out when a follower dies; until the new state is there acks=all waits."""
    lead_elsewhere_than_controller(topic)
    topic.zookeeper.drop(STATE)
    leader = topic[next(b.id for b in topic.brokers if is_led_by(b))]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    follower.kill(session_ends_at_once=True)
    topic.loop.run_until(lambda: STATE in topic.zookeeper.nodes)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {follower.id}))
    follower.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("failover", [False, True])
@pytest.mark.parametrize("dead", ["leader", "follower"])
def test_a_state_that_was_put_back_is_written_on(topic, failover, dead):
    """Its node has lower versions than the one that leader and controller know."""
    lead_elsewhere_than_controller(topic)
    leader = topic[topic.state(TP).leader]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    old = topic.zookeeper.data(STATE)
    topic.zookeeper.drop(STATE)
    follower.pause()
    topic.loop.run_for(2600)
    if STATE in topic.zookeeper.nodes:
        topic.zookeeper.drop(STATE)
    topic.zookeeper.put(STATE, old)
    follower.resume()
    topic.loop.run_for(3000)
    if failover:
        next_controller(topic)
    lead_elsewhere_than_controller(topic)
    leader = next(b for b in topic.brokers if is_led_by(b))
    victim = leader if dead == "leader" else follower
    victim.kill(session_ends_at_once=True)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {victim.id}), limit_ms=60_000)
    victim.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("removed", [STATE, PartitionStateZNode.partition_path("t", 0)])
def test_the_next_controller_makes_a_state_that_was_removed(topic, removed):
    """Above the leader epochs that its replicas have in their logs."""
    next_leader(topic)
    topic.wait_in_sync(TP, 1, 2, 3)
    old = topic.controller
    old.kill(session_ends_at_once=True)
    remove(topic, removed)
    old.start()
    topic.loop.run_until(lambda: STATE in topic.zookeeper.nodes)
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


@pytest.mark.parametrize("dead", ["leader", "follower"])
def test_a_state_with_a_controller_epoch_of_nobody_is_taken(topic, dead):
    """No controller had that epoch, so none has followed."""
    lead_elsewhere_than_controller(topic)
    put(topic, STATE, fields(topic, STATE) | {"controller_epoch": 1000})
    leader = topic[topic.state(TP).leader]
    follower = next(b for b in topic.brokers if b not in (leader, topic.controller))
    victim = leader if dead == "leader" else follower
    victim.kill(session_ends_at_once=True)
    topic.wait_in_sync(TP, *sorted({1, 2, 3} - {victim.id}), limit_ms=60_000)
    victim.start()
    topic.wait_in_sync(TP, 1, 2, 3)
    holds_everything(topic)


YOUNG = TopicZNode.path("young")


@pytest.mark.parametrize("gap_ms", range(8))
@pytest.mark.parametrize("failover", [False, True])
def test_a_reassignment_of_a_topic_that_was_just_made_is_carried_out(cluster, gap_ms, failover):
    if failover:
        cluster.controller.kill(session_ends_at_once=True)
    put(cluster, YOUNG, {"version": 1, "partitions": {"0": [1, 2]}})
    cluster.loop.run_for(gap_ms)
    move = {"topic": "young", "partition": 0, "replicas": [3, 2]}
    put(cluster, ReassignPartitionsZNode.PATH, {"version": 1, "partitions": [move]})
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    cluster.loop.run_until(lambda: cluster.zookeeper.data(ReassignPartitionsZNode.PATH) is None)
    assert fields(cluster, YOUNG)["partitions"] == {"0": [3, 2]}


@pytest.mark.parametrize("gap_ms", range(8))
@pytest.mark.parametrize("failover", [False, True])
def test_a_topic_that_was_just_made_is_deleted(cluster, gap_ms, failover):
    cluster.zookeeper.make_parents(DeleteTopicsZNode.topic_path("young"))
    cluster.loop.run_for(1000)
    if failover:
        cluster.controller.kill(session_ends_at_once=True)
    put(cluster, YOUNG, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    cluster.loop.run_for(gap_ms)
    cluster.zookeeper.put(DeleteTopicsZNode.topic_path("young"), b"")
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    request = DeleteTopicsZNode.topic_path("young")
    cluster.loop.run_until(lambda: request not in cluster.zookeeper.nodes)
    assert YOUNG not in cluster.zookeeper.nodes


@pytest.mark.parametrize("gap_ms", range(5))
def test_a_topic_that_is_enlarged_as_soon_as_it_is_created_has_all_its_leaders(cluster, gap_ms):
    def on_write(path: str, before: bytes | None, data: bytes | None) -> None:
        if path == PATH and before is None and data is not None:
            larger = json.loads(data)
            larger["partitions"] = {"0": [1, 2, 3], "1": [2, 3, 1]}
            cluster.loop.call_later(gap_ms, lambda: put(cluster, PATH, larger))

    cluster.zookeeper.on_write = on_write
    assert cluster.create_topic("t").error_code == 0
    cluster.zookeeper.on_write = None
    added = PartitionStateZNode.path("t", 1)
    cluster.loop.run_until(lambda: added in cluster.zookeeper.nodes, limit_ms=5000)
    for number in range(RECORDS):
        assert cluster.produced_when_there(TopicPartition("t", 1), b"r") == number
    holds_everything(cluster, TopicPartition("t", 1))


def test_a_deletion_asked_for_as_json_deletes_no_later_topic(topic):
    """The controller dies as soon as the topic's node is gone."""
    controller = topic.controller

    def on_write(path: str, _before: bytes | None, data: bytes | None) -> None:
        if path == PATH and data is None:
            topic.loop.call_later(0, lambda: controller.kill(session_ends_at_once=False))

    topic.zookeeper.on_write = on_write
    topic.zookeeper.make_parents(DeleteTopicsZNode.PATH)
    names = ["t", *(f"never-there-{number}" for number in range(2 * TOPICS_PER_MULTI))]
    put(topic, DeleteTopicsZNode.PATH, {"version": 1, "topics": names})
    topic.loop.run_until(lambda: PATH not in topic.zookeeper.nodes)
    topic.loop.run_for(10)
    topic.zookeeper.on_write = None
    put(topic, PATH, {"version": 1, "partitions": {"0": [1, 2, 3]}})
    topic.loop.run_for(20_000)
    assert PATH in topic.zookeeper.nodes
    controller.start()
    topic.loop.run_until(lambda: topic.zookeeper.children(DeleteTopicsZNode.PATH) == [])
    assert topic.zookeeper.data(DeleteTopicsZNode.PATH) == b""
    for number in range(RECORDS):
        assert topic.produced_when_there(TP, b"of the later topic") == number
    holds_everything(topic)


@pytest.mark.parametrize("period_ms", [2, 4, 8])
def test_a_controller_loads_while_a_topic_is_written_time_and_again(topic, period_ms):
    touching = True

    def touch() -> None:
        if touching:
            topic.zookeeper.put(PATH, topic.zookeeper.data(PATH))
            topic.loop.call_later(period_ms, touch)

    touch()
    topic.loop.run_for(100)
    next_controller(topic)
    assert topic.create_topic("other").error_code == 0
    touching = False
    holds_everything(topic)


@pytest.mark.parametrize("period_ms", [2, 4, 8])
def test_a_controller_loads_while_topics_are_made_one_after_another(topic, period_ms):
    made = itertools.count()
    is_making = True

    def make() -> None:
        if is_making:
            path = TopicZNode.path(f"made-{next(made)}")
            put(topic, path, {"version": 1, "partitions": {"0": [1, 2, 3]}})
            topic.loop.call_later(period_ms, make)

    old = topic.controller
    old.kill(session_ends_at_once=True)
    make()
    topic.loop.run_until(lambda: topic.controller not in (None, old), limit_ms=1000)
    is_making = False
    old.start()
    for number in range(next(made)):
        state = PartitionStateZNode.path(f"made-{number}", 0)
        topic.loop.run_until(lambda state=state: state in topic.zookeeper.nodes)
    holds_everything(topic)


def test_a_state_that_can_not_be_read_is_read_once_in_a_while(topic, monkeypatch):
    """However often it is told of, and whether its topic is known or not."""
    reads: list[str] = []
    get = SimulatedSession.get

    def counting(session, path, *arguments):
        if path == state:
            reads.append(path)
        return get(session, path, *arguments)

    assert topic.create_topic("other").error_code == 0
    for name in ("other", "ghost"):
        state = PartitionStateZNode.path(name, 0)
        topic.zookeeper.make_parents(state)
        good = topic.zookeeper.data(state)
        topic.zookeeper.put(state, b"garbage")
        for number in range(30):
            change = f"{IsrChangeZNode.PREFIX}9{number:03d}"
            partition = {"topic": name, "partition": 0}
            put(topic, change, {"version": 1, "partitions": [partition]})
            topic.loop.run_for(100)
        monkeypatch.setattr(SimulatedSession, "get", counting)
        topic.loop.run_for(60_000)
        monkeypatch.undo()
        assert len(reads) <= 13
        reads.clear()
        if good is not None:
            topic.zookeeper.put(state, good)
            next_leader_of = TopicPartition(name, 0)
            topic[topic.state(next_leader_of).leader].kill(session_ends_at_once=True)
            assert topic.produced(next_leader_of, b"first") == 0
            for broker in topic.brokers:
                if not broker.up:
                    broker.start()
            topic.loop.run_for(3000)
    holds_everything(topic)
