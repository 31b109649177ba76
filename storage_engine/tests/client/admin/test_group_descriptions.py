"""A group is described as its coordinator has it, whichever protocol its members speak."""

import pytest

from storage_engine.client.admin.group_descriptions import DEAD, describe
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.consumer_group_describe import (
    API,
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedMember,
    DescribedTopicPartitions,
)
from storage_engine.protocol.consumer_protocol import encode_assignment
from storage_engine.protocol.messages.describe_groups import DescribeGroupsResponse
from storage_engine.tests.client.support.coordinators import found_at, no_consumer_group

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
Classic = DescribeGroupsResponse.DescribedGroup


@pytest.fixture
def answers(fake):
    """The coordinator's answers, by API."""
    made = {"FindCoordinator": found_at(fake, 2), "ConsumerGroupDescribe": no_consumer_group()}
    fake.admin = lambda _broker_id, api, _message: made[api]
    return made


def part(*numbers):
    row = DescribedTopicPartitions(topic_name="t", partitions=numbers)
    return DescribedAssignment(topic_partitions=[row])


def test_a_member_of_a_consumer_group_has_its_epoch_and_both_assignments(cluster, answers):
    member = DescribedMember(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        assignment=part(2, 0),
        target_assignment=part(0, 1),
        member_type=CONSUMER_MEMBER,
    )
    migrating = DescribedMember(member_id="old", member_epoch=5, member_type=CLASSIC_MEMBER)
    group = DescribedConsumerGroup(
        group_state="Reconciling",
        group_epoch=6,
        assignment_epoch=5,
        assignor_name="uniform",
        members=[member, migrating],
    )
    answers["ConsumerGroupDescribe"] = ConsumerGroupDescribeResponse(groups=[group])
    found = describe(cluster, "g")
    assert (found.group_type, found.state, found.coordinator) == ("consumer", "Reconciling", 2)
    assert (found.epoch, found.assignment_epoch, found.protocol) == (6, 5, "uniform")
    first, second = found.members
    assert (first.member_id, first.instance_id, first.epoch) == ("m", "i", 4)
    assert (first.partitions, first.target) == ((T0, T2), (T0, T1))
    assert (first.topics, first.pattern) == (("t",), "t.*")
    assert (first.protocol, second.protocol) == ("consumer", "classic")


def classic():
    row = Classic.DescribedGroupMember(member_id="m", member_assignment=encode_assignment({T0}))
    group = Classic(
        group_state="Stable", protocol_type="consumer", protocol_data="range", members=[row]
    )
    return DescribeGroupsResponse(groups=[group])


@pytest.mark.parametrize("serves", [True, False])
def test_a_classic_group_has_neither_epochs_nor_targets(fake, cluster, answers, serves):
    if not serves:
        del fake.api_versions[API.key]
    answers["DescribeGroups"] = classic()
    found = describe(cluster, "g")
    assert (found.group_type, found.state, found.protocol) == ("classic", "Stable", "range")
    (member,) = found.members
    assert (member.partitions, member.epoch, member.target) == ((T0,), None, None)
    assert found.epoch is None


@pytest.mark.parametrize(
    "row",
    [
        Classic(group_state="Dead"),
        # From version 6 on.
        Classic(group_state="Dead", error_code=int(ErrorCode.GROUP_ID_NOT_FOUND)),
    ],
)
def test_a_group_that_does_not_exist_is_dead(cluster, answers, row):
    answers["DescribeGroups"] = DescribeGroupsResponse(groups=[row])
    assert describe(cluster, "g").state == DEAD


def test_who_may_not_see_a_consumer_group_hears_so(cluster, answers):
    row = DescribedConsumerGroup(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    answers["ConsumerGroupDescribe"] = ConsumerGroupDescribeResponse(groups=[row])
    with pytest.raises(KafkaError, match="group 'g': not allowed to use that group"):
        describe(cluster, "g")
