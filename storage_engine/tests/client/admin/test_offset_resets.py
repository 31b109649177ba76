"""The offsets of a group without members move within the logs that there are."""

import pytest

from storage_engine.client.admin.offset_resets import OffsetReset, reset_offsets
from storage_engine.client.cluster import EARLIEST, LATEST
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.describe_groups import DescribeGroupsResponse
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchResponse
from storage_engine.tests.client.support.coordinators import found_at, no_consumer_group

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Described = DescribeGroupsResponse.DescribedGroup


class Group:
    """A group of the coordinator at broker 1, with offsets of topic t: logs from 10 to 20."""

    def __init__(self, fake):
        self.stored = {0: 12}
        self.members = []
        self._fake = fake
        fake.admin = self._answer
        fake.add_topic("t", [1, 2])
        for number in (0, 1):
            fake.partition("t", number).start_offset = 10
            fake.partition("t", number).end_offset = 20

    def _answer(self, _broker_id, api, message):
        match api:
            case "FindCoordinator":
                return found_at(self._fake, 1)
            case "ConsumerGroupDescribe":
                return no_consumer_group()
            case "DescribeGroups":
                return DescribeGroupsResponse(groups=[Described(members=self.members)])
            case "OffsetFetch":
                topic = OffsetFetchResponse.OffsetFetchResponseTopic
                row = topic.OffsetFetchResponsePartition
                rows = [
                    row(partition_index=number, committed_offset=offset, metadata="")
                    for number, offset in self.stored.items()
                ]
                return OffsetFetchResponse(topics=[topic(name="t", partitions=rows)])
        for row in message.topics[0].partitions:
            self.stored[row.partition_index] = row.committed_offset
        return OffsetCommitResponse(topics=[])


@pytest.fixture
def group(fake):
    return Group(fake)


@pytest.mark.parametrize(
    ("where", "after"),
    [
        ({"at_ms": EARLIEST}, 10),
        ({"at_ms": LATEST}, 20),
        ({"offset": 3}, 10),
        ({"offset": 15}, 15),
        ({"offset": 99}, 20),
        ({"shift_by": -1}, 11),
        ({"shift_by": -9}, 10),
        ({"shift_by": 9}, 20),
    ],
    ids=str,
)
def test_a_new_offset_is_kept_within_the_log(cluster, group, where, after):
    assert reset_offsets(cluster, "g", **where) == [OffsetReset(tp=T0, before=12, after=after)]
    assert group.stored == {0: after}


def test_partitions_of_a_topic_that_is_named_need_no_offset_before(cluster, group):
    done = reset_offsets(cluster, "g", topics=["t"], offset=15, dry_run=True)
    assert [(each.tp, each.before, each.after) for each in done] == [(T0, 12, 15), (T1, None, 15)]
    assert group.stored == {0: 12}


def test_a_partition_that_is_gone_is_named(cluster, group):
    group.stored = {7: 1}
    with pytest.raises(ConfigError, match="t-7, which the group has an offset for, does not exist"):
        reset_offsets(cluster, "g", at_ms=LATEST)


def test_a_group_with_members_is_not_moved(cluster, group):
    group.members = [Described.DescribedGroupMember(member_id="m")] * 2
    with pytest.raises(KafkaError, match="group 'g' has 2 members: stop them") as raised:
        reset_offsets(cluster, "g", at_ms=LATEST)
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
