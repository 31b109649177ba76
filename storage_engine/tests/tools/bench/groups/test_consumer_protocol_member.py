"""The benchmark's member of the consumer protocol, which does what Kafka's client does."""

from uuid import UUID

import pytest

from benchmarks.groups.consumer_protocol_member import (
    AT_ONCE_S,
    RETRY_S,
    ConsumerProtocolMember,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
)
from storage_engine.tools.errors import CommandError

TOPIC_ID = UUID(int=7)
INTERVAL_S = 5.0


def answer(epoch: int, *partitions: int, is_given: bool = True) -> ConsumerGroupHeartbeatResponse:
    owned = [OwnedPartitions(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_epoch=epoch,
        heartbeat_interval_ms=int(1000 * INTERVAL_S),
        assignment=Assignment(topic_partitions=owned) if is_given else None,
    )


def refusal(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=error, member_epoch=0, heartbeat_interval_ms=0
    )


@pytest.fixture
def joined() -> ConsumerProtocolMember:
    member = ConsumerProtocolMember("g", "t")
    assert member.answered(answer(1, 0, 1)) == AT_ONCE_S
    assert member.answered(answer(1, is_given=False)) == INTERVAL_S
    return member


def test_it_joins_with_its_topic_and_owns_nothing():
    request = ConsumerProtocolMember("g", "t").heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["t"])
    assert request.topic_partitions == []


def test_a_heartbeat_without_news_is_the_shortest(joined):
    request = joined.heartbeat()
    assert request.member_epoch == 1
    assert request.topic_partitions is None
    assert request.subscribed_topic_names is None


def test_another_assignment_is_acknowledged_at_once_and_once(joined):
    assert joined.answered(answer(1, 1)) == AT_ONCE_S
    assert joined.owned == {1}
    told = joined.heartbeat().topic_partitions
    assert told is not None
    assert [(each.topic_id, list(each.partitions)) for each in told] == [(TOPIC_ID, [1])]
    assert joined.answered(answer(2, is_given=False)) == INTERVAL_S
    assert joined.heartbeat().topic_partitions is None
    assert joined.epoch == 2


def test_the_last_partition_is_acknowledged_with_an_empty_list(joined):
    assert joined.answered(answer(1)) == AT_ONCE_S
    assert joined.heartbeat().topic_partitions == []


def test_the_assignment_that_it_has_is_no_news(joined):
    assert joined.answered(answer(1, 1, 0)) == INTERVAL_S


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_is_fenced_joins_anew(joined, error):
    assert joined.answered(refusal(error)) == AT_ONCE_S
    assert joined.owned == frozenset()
    assert joined.heartbeat().member_epoch == 0


def test_a_coordinator_that_loads_is_asked_again(joined):
    assert joined.answered(refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) == RETRY_S
    assert joined.owned == {0, 1}


def test_another_refusal_ends_the_benchmark(joined):
    with pytest.raises(CommandError, match="GROUP_MAX_SIZE_REACHED"):
        joined.answered(refusal(ErrorCode.GROUP_MAX_SIZE_REACHED))


def test_it_leaves_with_nothing(joined):
    assert joined.farewell().member_epoch == -1
    assert joined.owned == frozenset()
