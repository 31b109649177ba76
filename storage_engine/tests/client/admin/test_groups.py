"""A group as an administrator sees it: an unknown lag is None, and a missing group is an error."""

import pytest

from storage_engine.client.admin.groups import delete_group, describe_group, list_groups
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.consumer_protocol import encode_assignment
from storage_engine.protocol.messages.delete_groups import DeleteGroupsResponse
from storage_engine.protocol.messages.describe_groups import DescribeGroupsResponse
from storage_engine.protocol.messages.list_groups import ListGroupsResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchResponse
from storage_engine.tests.client.support.coordinators import found_at, no_consumer_group

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
Described = DescribeGroupsResponse.DescribedGroup
Stored = OffsetFetchResponse.OffsetFetchResponseTopic
Deleted = DeleteGroupsResponse.DeletableGroupResult


@pytest.fixture
def answers(fake):
    """The coordinator's answers, by API."""
    made = {
        "FindCoordinator": found_at(fake, 1),
        "ConsumerGroupDescribe": no_consumer_group(),
    }
    fake.admin = lambda _broker_id, api, _message: made[api]
    return made


def stored(topic, offset):
    row = Stored.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=offset, metadata=""
    )
    return Stored(name=topic, partitions=[row])


def test_the_lag_is_counted_where_an_offset_and_the_end_of_the_log_are_known(
    fake, cluster, answers
):
    fake.add_topic("t", [1, 2])
    fake.partition("t", 0).end_offset = fake.partition("t", 1).end_offset = 20
    member = Described.DescribedGroupMember(
        member_id="m", member_assignment=encode_assignment({T0, T1})
    )
    answers["DescribeGroups"] = DescribeGroupsResponse(
        groups=[Described(group_state="Stable", protocol_type="consumer", members=[member])]
    )
    answers["OffsetFetch"] = OffsetFetchResponse(topics=[stored("t", 12), stored("gone", 3)])
    found = describe_group(cluster, "g")
    rows = [(each.tp, each.offset, each.lag, each.member_id) for each in found.partitions]
    assert rows == [(GONE, 3, None, None), (T0, 12, 8, "m"), (T1, None, None, "m")]
    assert found.lag == 8


def test_a_group_that_does_not_exist_is_an_error_that_says_how_to_find_others(cluster, answers):
    answers["DescribeGroups"] = DescribeGroupsResponse(groups=[Described(group_state="Dead")])
    with pytest.raises(KafkaError, match="no group 'g'; 'headrace groups list' shows") as raised:
        describe_group(cluster, "g")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(cluster, answers):
    refused = Deleted(group_id="g", error_code=int(ErrorCode.NON_EMPTY_GROUP))
    answers["DeleteGroups"] = DeleteGroupsResponse(results=[refused])
    with pytest.raises(KafkaError, match="group 'g' has members: stop them first"):
        delete_group(cluster, "g")


def listed(name, state, group_type):
    return ListGroupsResponse.ListedGroup(
        group_id=name, protocol_type="consumer", group_state=state, group_type=group_type
    )


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"types": ["consumer"]}, ["b", "c"]),
        ({"types": ["classic"]}, ["a"]),
        ({"states": ["stable"]}, ["a", "c"]),
        ({"states": ["Stable", "Empty"], "types": ["consumer"]}, ["b", "c"]),
    ],
)
def test_groups_are_listed_by_type_and_state_also_by_brokers_that_do_not_filter(
    cluster, answers, wanted, names
):
    rows = [listed("c", "Stable", "consumer"), listed("b", "Empty", "Consumer")]
    answers["ListGroups"] = ListGroupsResponse(groups=[*rows, listed("a", "Stable", "")])
    found = list_groups(cluster, **wanted)
    assert sorted({each.group for each in found}) == names
