"""New topics and partitions on machines of several brokers. Source: R-REP13."""

from collections import Counter

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.topic_admin import BEGUN_MS, RequestedTopic
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.protocol.messages import create_partitions, create_topics, delete_topics
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

three_machines = cluster_fixture(brokers=6, host_names=("a", "a", "b", "b", "c", "c"))
two_machines = cluster_fixture(brokers=6, host_names=("a", "a", "a", "b", "b", "b"))


def assignment(cluster: SimulatedCluster, topic: str) -> dict[int, list[int]]:
    data = cluster.zookeeper.data(TopicZNode.path(topic))
    assert data is not None
    return {p: list(rs) for p, rs in TopicZNode.decode(topic, data).assignment.items()}


def machines(cluster: SimulatedCluster, replicas: list[int]) -> set[str | None]:
    return {cluster[broker].config.machine for broker in replicas}


def grow(cluster: SimulatedCluster, topic: str, count: int, given=None) -> tuple[int, str | None]:
    row = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic
    assignments = None
    if given is not None:
        assignments = [row.CreatePartitionsAssignment(broker_ids=each) for each in given]
    request = create_partitions.CreatePartitionsRequest(
        topics=[row(name=topic, count=count, assignments=assignments)], timeout_ms=30_000
    )
    answer = cluster.answer(cluster.ask_controller(create_partitions.API, 1, request))
    return answer.results[0].error_code, answer.results[0].error_message


def test_replicas_of_new_topics_and_partitions_share_no_machine(three_machines):
    cluster = three_machines
    assert cluster.create_topic("t", 8).error_code == 0
    assert grow(cluster, "t", 20) == (0, None)
    found = assignment(cluster, "t")
    assert len(found) == 20
    assert all(len(machines(cluster, replicas)) == 3 for replicas in found.values())
    leaders = Counter(replicas[0] for replicas in found.values())
    assert set(leaders.values()) <= {3, 4}


def test_topics_of_one_request_count_each_other(three_machines):
    """None of them is in the metadata when the next is placed."""
    row = create_topics.CreateTopicsRequest.CreatableTopic
    request = create_topics.CreateTopicsRequest(
        topics=[
            row(name=f"t{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for n in range(12)
        ],
        timeout_ms=30_000,
    )
    answer = three_machines.answer(three_machines.ask_controller(create_topics.API, 5, request))
    assert {topic.error_code for topic in answer.topics} == {0}
    leaders = Counter(assignment(three_machines, f"t{n}")[0][0] for n in range(12))
    assert set(leaders.values()) == {2}


def test_more_replicas_than_machines_are_refused_for_topics_of_users(two_machines):
    answer = two_machines.create_topic("t")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "replication factor 3 is not possible with 6 brokers on 2 machines: ask for 1 to 2, or add "
        "machines: replicas of a partition never share a broker.host.name",
    )


def test_internal_topics_warn_and_use_all_machines(two_machines, caplog):
    admin = two_machines[1].parts.cluster.topic_admin
    asked_for = RequestedTopic(
        topic="__consumer_offsets", partitions=10, replication_factor=3, may_share_machines=True
    )
    planned = admin.plan(asked_for)
    for replicas in planned.info.assignment.values():
        assert len(replicas) == 3
        assert len(machines(two_machines, list(replicas))) == 2
    assert caplog.messages[-1] == (
        "topic=__consumer_offsets has 3 replicas and fewer machines take them: some share one, and "
        "are lost together; add machines, then reassign it"
    )


def test_an_assignment_by_hand_may_share_a_machine_and_is_warned_of(two_machines, caplog):
    row = create_topics.CreateTopicsRequest.CreatableTopic
    request = create_topics.CreateTopicsRequest(
        topics=[
            row(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    row.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 4])
                ],
                configs=[],
            )
        ],
        timeout_ms=30_000,
    )
    answer = two_machines.answer(two_machines.ask_controller(create_topics.API, 5, request))
    assert answer.topics[0].error_code == 0
    warning = "replicas of 1 partitions share a machine, and are lost together, such as partition="
    assert f"{warning}t-0 brokers=[1, 2]" in caplog.messages
    assert grow(two_machines, "t", 2, [[4, 5, 1]]) == (0, None)
    assert f"{warning}t-1 brokers=[4, 5]" in caplog.messages


def test_a_place_that_is_not_known_yet_is_asked_for_again(three_machines):
    """The controller named a broker before its registration was read here."""
    admin = three_machines[1].parts.cluster.topic_admin
    del three_machines[1].parts.cluster.places._places[3]
    with pytest.raises(KafkaError, match="broker 3 is not known yet") as refusal:
        admin.plan(RequestedTopic(topic="t", partitions=1, replication_factor=3))
    assert refusal.value.retriable


@pytest.mark.parametrize("delay_ms", range(0, 12, 2))
def test_a_controller_that_is_killed_while_a_topic_is_made_leaves_no_shared_machine(
    three_machines, delay_ms
):
    cluster = three_machines
    controller = cluster.controller
    assert controller is not None
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=12, replication_factor=3, assignments=[], configs=[]
            )
        ],
        timeout_ms=30_000,
    )
    cluster.ask(controller.id, create_topics.API, 5, request)
    cluster.loop.run_for(delay_ms)
    controller.kill()
    cluster.loop.run_for(20_000)
    controller.start()
    cluster.loop.run_until(lambda: all(len(b.metadata.brokers) == 6 for b in cluster.brokers))
    # It may or may not have been written.
    assert cluster.create_topic("t", 12).error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
    found = assignment(cluster, "t")
    assert len(found) == 12
    assert all(len(machines(cluster, replicas)) == 3 for replicas in found.values())


def test_topics_that_are_deleted_again_count_no_more_after_a_while(three_machines):
    cluster = three_machines
    place_of_one(cluster, "there")
    for number in range(5):
        place_of_one(cluster, f"short-{number}")
        delete(cluster, f"short-{number}")
    cluster.loop.run_for(BEGUN_MS)
    first = place_of_one(cluster, "first")
    delete(cluster, "first")
    cluster.loop.run_for(BEGUN_MS)
    assert place_of_one(cluster, "again") == first


def place_of_one(cluster: SimulatedCluster, topic: str) -> int:
    """Create a topic with one replica, and return where it is."""
    row = create_topics.CreateTopicsRequest.CreatableTopic
    one = row(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = create_topics.CreateTopicsRequest(topics=[one], timeout_ms=30_000)
    answer = cluster.answer(cluster.ask_controller(create_topics.API, 5, request))
    assert answer.topics[0].error_code == 0
    return assignment(cluster, topic)[0][0]


def delete(cluster: SimulatedCluster, topic: str) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    answer = cluster.answer(cluster.ask_controller(delete_topics.API, 1, request))
    assert answer.responses[0].error_code == 0
