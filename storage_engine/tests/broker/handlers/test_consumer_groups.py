"""ConsumerGroupHeartbeat and ConsumerGroupDescribe at brokers in simulated time: what members are
told, what is refused before it reaches the coordinator, and what is shown of a group."""

import sys
from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.settings.group_config import NOT_ENABLED
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.apis import api_versions, consumer_group_heartbeat
from storage_engine.protocol.apis.consumer_group_heartbeat import OwnedPartitions
from storage_engine.protocol.messages import (
    delete_groups,
    describe_groups,
    offset_delete,
    txn_offset_commit,
)
from storage_engine.tests.broker.groups.consumer_member import ConsumerMember, settle
from storage_engine.tests.broker.handlers.test_features import lower
from storage_engine.tests.broker.settings.settings_requests import SET, alter
from storage_engine.tests.broker.support import cluster_fixture

PARTITIONS = 6
GROUP_RESOURCE = 32
CALLS_MAX = 185

cluster = cluster_fixture(
    "a",
    num_partitions=str(PARTITIONS),
    offsets_topic_num_partitions="3",
    min_insync_replicas="2",
)


@pytest.fixture
def topic(cluster):
    """The topic `b` with six partitions."""
    assert cluster.create_topic("b", partitions=PARTITIONS).error_code == 0
    cluster.loop.run_for(1_000)
    return cluster


def test_one_member_gets_every_partition(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    assert member.partitions == list(range(PARTITIONS))


def test_a_second_member_gets_half_once_the_first_has_let_go(topic):
    first, second = (ConsumerMember(topic, name, ["b"]) for name in ("m1", "m2"))
    settle(first)
    assert second.beat() is ErrorCode.NONE
    assert second.partitions == []
    settle(first, second)
    assert len(first.partitions) == len(second.partitions) == PARTITIONS / 2
    assert sorted(first.partitions + second.partitions) == list(range(PARTITIONS))


def test_the_epoch_of_a_stable_member_is_told_with_the_interval_and_no_assignment(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    answer = member.ask(topic_partitions=None)
    assert (answer.member_id, answer.member_epoch) == ("m1", member.epoch)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment is None


def test_a_heartbeat_asks_once_whether_the_log_of_its_group_can_be_written(topic, monkeypatch):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    asked = []
    check = HostedPartition.check_writable

    def note(partition, acks, leader_epoch=-1):
        asked.append(partition.topic_partition.topic)
        check(partition, acks, leader_epoch)

    monkeypatch.setattr(HostedPartition, "check_writable", note)
    request = member.request(topic_partitions=None)
    answers = topic.ask(member.client.coordinator(), consumer_group_heartbeat.API, 1, request)
    topic.loop.run_until(lambda: bool(answers))
    assert answers[0].error_code == 0
    assert asked == [GROUP_OFFSETS_TOPIC]


def test_a_heartbeat_without_news_costs_few_calls_of_functions(topic, monkeypatch):
    """Thousands come in a second. Calls of Python and of C count, from the frame to the answer."""
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    request = member.request(topic_partitions=None, subscribed_topic_names=None)
    handle, costs = Dispatcher.__call__, []

    def counted(*args):
        calls = 0

        def count(_frame, event, _function):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            handle(*args)
        finally:
            sys.setprofile(None)
        if int.from_bytes(args[-1][:2]) == consumer_group_heartbeat.API.key:
            costs.append(calls)

    monkeypatch.setattr(Dispatcher, "__call__", counted)
    answers = topic.ask(member.client.coordinator(), consumer_group_heartbeat.API, 1, request)
    topic.loop.run_until(lambda: bool(answers))
    assert answers[0].error_code == 0
    assert len(costs) == 1 and costs[0] < CALLS_MAX


def test_a_member_with_nothing_new_goes_on_while_too_few_replicas_are_in_sync(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    coordinator = member.client.coordinator()
    for broker in {1, 2, 3} - {coordinator}:
        topic[broker].kill(session_ends_at_once=True)
    number = state_partition(member.client.group, 3)
    tp = TopicPartition(GROUP_OFFSETS_TOPIC, number)
    topic.loop.run_until(lambda: set(topic.state(tp).isr) == {coordinator})
    topic.loop.run_for(1_000)
    answer = member.ask(topic_partitions=None)
    assert (answer.error_code, answer.member_epoch) == (0, member.epoch)
    answers = topic.ask(
        coordinator,
        consumer_group_heartbeat.API,
        1,
        member.request(topic_partitions=None, subscribed_topic_names=["a"]),
    )
    topic.loop.run_until(lambda: bool(answers))
    assert ErrorCode.of(answers[0].error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_of_version_0_is_given_an_id(topic):
    member = ConsumerMember(topic, "", ["b"])
    assert member.beat(version=0) is ErrorCode.NONE
    assert len(member.member_id) == 36


def test_a_member_of_version_1_brings_its_id(topic):
    assert ConsumerMember(topic, "", ["b"]).beat() is ErrorCode.INVALID_REQUEST


def test_what_a_member_leaves_behind_goes_to_the_others(topic):
    first, second = (ConsumerMember(topic, name, ["b"]) for name in ("m1", "m2"))
    settle(first, second)
    assert second.leave() is ErrorCode.NONE
    settle(first)
    assert first.partitions == list(range(PARTITIONS))


def test_a_pattern_that_is_none_is_refused_with_the_reason(topic):
    answer = ConsumerMember(topic, "m1", None, pattern="(").ask()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message == ("'(' is no regular expression of RE2's syntax: missing ): (")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": "g" * 20_000}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": "r" * 20_000}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": ["t" * 250]}, ErrorCode.INVALID_REQUEST),
        (
            {"subscribed_topic_names": [str(each) for each in range(10_001)]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"server_assignor": "cooperative-sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_input_is_refused_in_one_line(topic, fields, code):
    answer = ConsumerMember(topic, "m1", ["b"]).ask(**fields)
    assert ErrorCode.of(answer.error_code) is code
    assert answer.error_message
    assert "\n" not in answer.error_message


def test_partitions_named_twice_count_once(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    settle(member)
    ((topic_id, numbers),) = member.owned.items()
    row = OwnedPartitions(topic_id=topic_id, partitions=numbers + numbers)
    assert member.beat(topic_partitions=[row, row]) is ErrorCode.NONE


def test_commits_of_an_older_epoch_are_refused(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    assert member.commit(1, epoch=member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert member.commit(1) is ErrorCode.NONE


def test_reads_of_an_older_epoch_are_refused(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    assert member.fetch(epoch=member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert member.fetch() is ErrorCode.NONE


def test_a_commit_of_a_client_that_knows_no_epochs_is_refused(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    assert member.commit(1, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_a_group_is_described_with_both_assignments_of_each_member(topic):
    first, second = (ConsumerMember(topic, name, ["b"]) for name in ("m1", "m2"))
    settle(first)
    second.beat()
    group = first.described()
    assert (group.error_code, group.group_state) == (0, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch) == (second.epoch, second.epoch)
    assert group.assignor_name == "uniform"
    of_first, of_second = group.members
    assert (of_first.member_id, of_second.member_id) == ("m1", "m2")
    assert of_first.subscribed_topic_names == ["b"]
    (has,), (is_to_have,) = (
        of_first.assignment.topic_partitions,
        of_first.target_assignment.topic_partitions,
    )
    assert (has.topic_name, len(has.partitions)) == ("b", PARTITIONS)
    assert len(is_to_have.partitions) == PARTITIONS / 2
    assert of_second.assignment.topic_partitions == []
    assert of_second.member_type == 1


@pytest.mark.parametrize(
    ("group", "code"),
    [("", ErrorCode.INVALID_GROUP_ID), ("no-such-group", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_group_that_is_none_is_described_by_an_error(topic, group, code):
    described = ConsumerMember(topic, "m1", ["b"], group="g").described(group_ids=[group])
    assert ErrorCode.of(described.error_code) is code
    assert described.error_message


def test_below_group_version_1_nothing_of_consumer_groups_is_served(topic):
    member = ConsumerMember(topic, "m1", ["b"])
    assert member.beat() is ErrorCode.NONE
    lower(topic)
    beaten, described = member.ask(), member.described()
    for answer in (beaten, described):
        assert ErrorCode.of(answer.error_code) is ErrorCode.UNSUPPORTED_VERSION
        assert answer.error_message == NOT_ENABLED
    answer = topic.answer(topic.ask(1, api_versions.API, 3, api_versions.ApiVersionsRequest()))
    assert not {68, 69} & set(answer.ranges())


def test_below_group_version_1_groups_have_no_settings(topic):
    lower(topic)
    change = ("consumer.session.timeout.ms", SET, "50000")
    assert alter(topic, 1, GROUP_RESOURCE, "g", change) == (
        ErrorCode.UNSUPPORTED_VERSION,
        NOT_ENABLED,
    )


def in_transaction(producer: SimulatedProducer, member: ConsumerMember, epoch: int) -> ErrorCode:
    """TxnOffsetCommit 5 of a member, with an epoch."""
    item = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    row = item.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="p",
        group_id=member.client.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=epoch,
        member_id=member.member_id,
        topics=[item(name="a", partitions=[row])],
    )

    def code_of(answer: Any) -> int:
        return int(answer.topics[0].partitions[0].error_code)

    return ErrorCode.of(code_of(member.client.ask(txn_offset_commit.API, 5, request, code_of)))


def test_offsets_in_a_transaction_need_the_members_epoch(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    producer = SimulatedProducer(topic, "p")
    producer.init()
    assert in_transaction(producer, member, member.epoch - 1) is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(producer, member, member.epoch) is ErrorCode.NONE
    producer.end(commits=True)
    topic.loop.run_for(2_000)
    assert member.client.offset(require_stable=True) == 5


def test_a_group_is_deleted_once_it_has_no_members(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    request = delete_groups.DeleteGroupsRequest(groups_names=["g"])

    def deleted() -> ErrorCode:
        answer = member.client.ask(delete_groups.API, 2, request, lambda a: a.results[0].error_code)
        return ErrorCode.of(answer.results[0].error_code)

    assert deleted() is ErrorCode.NON_EMPTY_GROUP
    assert member.leave() is ErrorCode.NONE
    assert deleted() is ErrorCode.NONE
    assert ErrorCode.of(member.described().error_code) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_topic_that_a_member_reads_are_not_deleted(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    assert member.commit(1) is ErrorCode.NONE
    item = offset_delete.OffsetDeleteRequest.OffsetDeleteRequestTopic
    row = item.OffsetDeleteRequestPartition(partition_index=0)
    request = offset_delete.OffsetDeleteRequest(
        group_id="g", topics=[item(name="a", partitions=[row])]
    )
    answer = member.client.ask(offset_delete.API, 0, request)
    ((told,),) = [each.partitions for each in answer.topics]
    assert ErrorCode.of(told.error_code) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_consumer_group_is_dead_to_those_who_describe_classic_groups(topic):
    member = ConsumerMember(topic, "m1", ["a"])
    settle(member)
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    answer = member.client.ask(describe_groups.API, 5, request, lambda a: a.groups[0].error_code)
    (told,) = answer.groups
    assert (told.error_code, told.group_state, told.members) == (0, "Dead", [])
