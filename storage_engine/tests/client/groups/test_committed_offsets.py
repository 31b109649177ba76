"""What a program without group membership sends to store its offsets."""

from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.client.groups.committed_offsets import OffsetCommitter
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.tests.client.support.coordinators import found_at

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def coordinator(fake) -> SimpleNamespace:
    """Brokers that answer for it: by partition the codes of the next requests, then yes."""
    state = SimpleNamespace(broker=1, codes={}, asked=[], stored={})

    def answer(broker_id: int, api: str, message: Any) -> Any:
        if api == "FindCoordinator":
            assert (message.key, message.key_type) == ("g", 0)
            return found_at(fake, state.broker)
        state.asked.append((broker_id, message))
        topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
        return OffsetCommitResponse(
            topics=[
                topic_class(
                    name=topic.name,
                    partitions=[
                        topic_class.OffsetCommitResponsePartition(
                            partition_index=row.partition_index,
                            error_code=int(store(broker_id, topic.name, row)),
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    def store(broker_id: int, topic: str, row: Any) -> ErrorCode:
        tp = TopicPartition(topic, row.partition_index)
        codes = state.codes.get(tp)
        if broker_id != state.broker:
            return ErrorCode.NOT_COORDINATOR
        if codes:
            return ErrorCode.of(codes.pop(0))
        state.stored[tp] = row.committed_offset
        return ErrorCode.NONE

    fake.admin = answer
    fake.add_topic("t", [1, 2])
    return state


def test_offsets_are_stored_for_a_group_without_members(cluster, coordinator):
    OffsetCommitter(cluster, "g").commit({T0: 5, U0: 1, T1: 7})
    assert coordinator.stored == {T0: 5, T1: 7, U0: 1}
    ((_, message),) = coordinator.asked
    assert (message.group_id, message.member_id) == ("g", "")
    assert message.generation_id_or_member_epoch == -1


def test_a_coordinator_that_loads_or_moves_is_asked_again(cluster, coordinator):
    group = OffsetCommitter(cluster, "g")
    coordinator.codes = {T0: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]}
    group.commit({T0: 5})
    coordinator.broker = 2
    group.commit({T0: 6})
    assert coordinator.stored == {T0: 6}
    assert [broker_id for broker_id, _ in coordinator.asked] == [1, 1, 1, 2]


def test_a_partition_that_is_refused_for_good_is_told_although_another_may_be_retried(
    cluster, coordinator
):
    coordinator.codes = {
        T0: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
        T1: [ErrorCode.UNKNOWN_MEMBER_ID],
    }
    with pytest.raises(KafkaError, match="offsets of group 'g', t-1: ") as raised:
        OffsetCommitter(cluster, "g").commit({T0: 5, T1: 7})
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_ends_at_its_deadline(cluster, coordinator):
    coordinator.codes = {T0: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000}
    with pytest.raises(DeadlineExceededError, match="OffsetCommit of group 'g'"):
        OffsetCommitter(cluster, "g", deadline_ms=100).commit({T0: 5})


def test_no_offsets_need_no_request(cluster, coordinator):
    OffsetCommitter(cluster, "g").commit({})
    assert coordinator.asked == []
