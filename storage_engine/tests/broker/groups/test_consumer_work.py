"""What coordinators of consumer groups are told and carry out: topics that come, grow and go,
patterns, settings of groups, targets, and the next coordinator. All in simulated time."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import consumer_group_heartbeat
from storage_engine.protocol.messages import (
    create_partitions,
    join_group,
    list_groups,
    offset_commit,
    sync_group,
)
from storage_engine.tests.broker.groups.consumer_member import ConsumerMember, settle
from storage_engine.tests.broker.groups.test_consumer_groups import GroupClient
from storage_engine.tests.broker.settings.settings_requests import DONE, SET, TOPIC, alter
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.core.groups.group_bench import subscription

PARTITIONS = 6
GROUP_RESOURCE = 32

cluster = cluster_fixture(
    "a",
    offsets_topic_num_partitions="3",
    min_insync_replicas="2",
)


@pytest.fixture
def topic(cluster):
    """The topic `b` with six partitions."""
    assert cluster.create_topic("b", partitions=PARTITIONS).error_code == 0
    cluster.loop.run_for(1_000)
    return cluster


def grow(cluster, name: str, count: int) -> None:
    item = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic
    request = create_partitions.CreatePartitionsRequest(
        topics=[item(name=name, count=count, assignments=None)], timeout_ms=10_000
    )
    (row,) = cluster.answer(cluster.ask_controller(create_partitions.API, 3, request)).results
    assert row.error_code == 0, row.error_message


def test_a_group_goes_on_where_it_was_with_the_next_coordinator(topic):
    first, second = (ConsumerMember(topic, name, ["b"]) for name in ("m1", "m2"))
    settle(first, second)
    before = first.owned, second.owned, first.epoch
    topic[first.client.coordinator()].kill()
    settle(first, second)
    assert (first.owned, second.owned, first.epoch) == before


def test_a_topic_that_grows_is_shared_out_anew(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    grow(topic, "b", PARTITIONS + 2)
    settle(member)
    assert member.partitions == list(range(PARTITIONS + 2))


def test_a_topic_that_comes_later_is_assigned_when_it_is_there(cluster):
    member = ConsumerMember(cluster, "m1", ["later"])
    settle(member)
    assert member.partitions == []
    assert cluster.create_topic("later", partitions=2).error_code == 0
    settle(member)
    assert member.partitions == [0, 1]


def test_a_topic_that_is_made_anew_is_assigned_by_its_new_id(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    (before,) = member.owned
    topic.answer(topic.delete_topic("b"))
    topic.loop.run_for(2_000)
    settle(member)
    assert member.owned == {}
    assert topic.create_topic("b", partitions=2).error_code == 0
    settle(member)
    (after,) = member.owned
    assert after != before
    assert member.partitions == [0, 1]


def test_a_pattern_finds_topics_also_those_that_come_later(topic):
    member = ConsumerMember(topic, "m1", None, pattern="b.*")
    settle(member)
    assert member.partitions == list(range(PARTITIONS))
    assert topic.create_topic("b2", partitions=1).error_code == 0
    settle(member, rounds=30)
    assert len(member.owned) == 2


def test_a_groups_own_settings_count_with_the_next_heartbeat(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    change = ("consumer.heartbeat.interval.ms", SET, "7000")
    assert alter(topic, 1, GROUP_RESOURCE, "g", change) == DONE
    topic.loop.run_for(1_000)
    assert member.ask().heartbeat_interval_ms == 7_000


def test_the_next_coordinator_knows_the_groups_settings(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    change = ("consumer.heartbeat.interval.ms", SET, "7000")
    assert alter(topic, 1, GROUP_RESOURCE, "g", change) == DONE
    settle(member)
    topic[member.client.coordinator()].kill()
    assert member.ask().heartbeat_interval_ms == 7_000


def test_a_member_that_is_silent_for_its_session_is_no_member_any_more(topic):
    first, second = (ConsumerMember(topic, name, ["b"]) for name in ("m1", "m2"))
    settle(first, second)
    for _ in range(50):
        assert first.beat() is ErrorCode.NONE
        topic.loop.run_for(1_000)
    assert first.partitions == list(range(PARTITIONS))
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_targets_of_many_partitions_are_computed_beside_the_loop(cluster):
    assert cluster.create_topic("wide", partitions=300).error_code == 0
    first, second = (ConsumerMember(cluster, name, ["wide"]) for name in ("m1", "m2"))
    settle(first, second)
    assert len(first.partitions) == len(second.partitions) == 150


def classic_member(cluster, topics: list[str]) -> GroupClient:
    """A group of one classic member that offers two protocols."""
    client = GroupClient(cluster)
    protocol = join_group.JoinGroupRequest.JoinGroupRequestProtocol
    metadata = subscription(*topics)
    offers = [protocol(name=name, metadata=metadata) for name in ("range", "roundrobin")]
    request = client.join_request()
    request.protocols = offers
    promised = client.ask(join_group.API, 9, request)
    request.member_id = promised.member_id
    joined = client.ask(join_group.API, 9, request)
    assert joined.error_code == 0
    sync = sync_group.SyncGroupRequest(
        group_id=client.group, generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert client.ask(sync_group.API, 5, sync).error_code == 0
    return client


def listed(cluster, client: GroupClient) -> list[tuple[str, str]]:
    answer = client.ask(list_groups.API, 5, list_groups.ListGroupsRequest())
    return [(each.group_id, each.group_type) for each in answer.groups]


def test_a_classic_group_becomes_a_consumer_group_with_the_first_member_that_asks(topic):
    client = classic_member(topic, ["b"])
    assert listed(topic, client) == [("g", "classic")]
    member = ConsumerMember(topic, "m1", ["b"])
    assert member.beat() is ErrorCode.NONE
    assert listed(topic, client) == [("g", "consumer")]


def test_a_conversion_that_does_not_fit_into_one_batch_is_refused_and_changes_nothing(topic):
    client = classic_member(topic, [f"a-topic-with-a-long-name-{number}" for number in range(40)])
    change = ("max.message.bytes", SET, "2600")
    assert alter(topic, 1, TOPIC, "__consumer_offsets", change) == DONE
    topic.loop.run_for(1_000)
    assert ConsumerMember(topic, "m1", ["b"]).beat() is ErrorCode.INVALID_REQUEST
    assert listed(topic, client) == [("g", "classic")]


def test_no_session_ends_while_replicas_are_missing(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    owned = member.partitions
    coordinator = member.client.coordinator()
    for other in topic.brokers:
        if other.id != coordinator:
            topic.network.cut(coordinator, other.id)
    # A record that is not replicated takes the others out of the set of in-sync replicas.
    commit = member.client.commit_request(1)
    commit.member_id, commit.generation_id_or_member_epoch = "m1", member.epoch
    topic.ask(coordinator, offset_commit.API, 9, commit)
    topic.loop.run_for(30_000)
    codes = []
    # The session is 45 s.
    for _ in range(20):
        request = member.request(topic_partitions=None)
        asked = topic.ask(coordinator, consumer_group_heartbeat.API, 1, request)
        topic.loop.run_for(5_000)
        codes.append(ErrorCode.of(asked[0].error_code))
    assert set(codes) == {ErrorCode.NONE}
    topic.network.heal()
    topic.loop.run_for(5_000)
    assert member.beat() is ErrorCode.NONE
    assert member.partitions == owned
