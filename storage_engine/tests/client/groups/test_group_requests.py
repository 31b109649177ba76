"""A commit of offsets: as a member or not, and which refusal counts."""

import pytest

from storage_engine.client.groups.group_requests import (
    MemberIdentity,
    commit_request,
    refused_commit,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAITS, FINAL = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ([0, 0], None),
        ([WAITS, 0], (T0, WAITS)),
        ([WAITS, FINAL], (T1, FINAL)),
        ([FINAL, WAITS], (T0, FINAL)),
    ],
)
def test_a_refusal_for_good_counts_before_one_that_a_retry_may_help(codes, found):
    rows = [
        Topic.OffsetCommitResponsePartition(partition_index=number, error_code=int(code))
        for number, code in enumerate(codes)
    ]
    answer = OffsetCommitResponse(topics=[Topic(name="t", partitions=rows)])
    assert refused_commit(answer) == found


@pytest.mark.parametrize(("member_id", "instance_id"), [("m", "static"), ("", None)])
def test_only_a_member_commits_under_the_name_of_a_static_one(member_id, instance_id):
    caller = MemberIdentity(member_id=member_id, generation=3)
    message = commit_request("g", caller, {T1: 5, T0: 0}, instance_id="static").message
    assert (message.group_instance_id, message.generation_id_or_member_epoch) == (instance_id, 3)
    (topic,) = message.topics
    offsets = {row.partition_index: row.committed_offset for row in topic.partitions}
    assert offsets == {1: 5, 0: 0}
