"""The requests of a member of the classic protocol, whose leader assigns by the topics of all."""

import pytest

from storage_engine.client.consumer.classic_member import ClassicMember
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.membership import (
    Assigned,
    Farewell,
    GroupFailed,
    MembershipTick,
    Outgoing,
    Subscribed,
    Unsubscribed,
)
from storage_engine.client.consumer.subscription import Subscription
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from storage_engine.protocol.messages.join_group import JoinGroupResponse
from storage_engine.protocol.messages.sync_group import SyncGroupResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Member = JoinGroupResponse.JoinGroupResponseMember


@pytest.fixture
def config(fake):
    fake.add_topic("t", [1, 2])
    return ConsumerConfig.of(
        {
            "bootstrap.servers": fake.bootstrap_servers,
            "group.id": "g",
            "max.poll.interval.ms": 100_000,
            "session.timeout.ms": 20_000,
        }
    )


def request_in(steps):
    (step,) = steps
    assert isinstance(step, Outgoing)
    return step


def joined(config, cluster, leader="m"):
    """A member of generation 3, and its request for its part."""
    member = ClassicMember(config, cluster)
    subscription = Subscription(topics=frozenset({"t"}))
    join = request_in(member.step(Subscribed(now_ms=monotonic_ms(), subscription=subscription)))
    # The others may take as long as they may take to poll.
    assert join.wait_ms == 100_000 + config.request_timeout_ms
    message = join.make(0).message
    assert message.protocols[0].metadata == encode_subscription(["t"])
    rows = [Member(member_id=name, metadata=encode_subscription(["t"])) for name in ("m", "n")]
    answer = JoinGroupResponse(member_id="m", leader=leader, generation_id=3, members=rows)
    return member, request_in(join.answered(answer, ErrorCode.NONE))


def test_the_leader_gives_each_member_its_part(config, cluster):
    _, sync = joined(config, cluster)
    message = sync.make(0).message
    parts = {row.member_id: decode_assignment(row.assignment) for row in message.assignments}
    assert parts == {"m": (T0,), "n": (T1,)}


def test_who_does_not_lead_gives_no_parts(config, cluster):
    _, sync = joined(config, cluster, leader="n")
    assert sync.make(0).message.assignments == []


def test_a_part_is_the_consumers_for_its_generation(config, cluster):
    member, sync = joined(config, cluster)
    answer = SyncGroupResponse(assignment=encode_assignment([T0]))
    (step,) = sync.answered(answer, ErrorCode.NONE)
    assert isinstance(step, Assigned)
    assert (step.partitions, step.more) == ((T0,), False)
    assert (step.caller.member_id, step.caller.generation) == ("m", 3)
    beat = request_in(member.step(MembershipTick(now_ms=monotonic_ms() + 50_000)))
    # A coordinator that hangs is noticed within the session.
    assert beat.wait_ms == 10_000
    (farewell,) = member.step(Unsubscribed())
    assert isinstance(farewell, Farewell)
    assert farewell.request.message.members[0].member_id == "m"


def test_a_part_that_can_not_be_read_is_an_error(config, cluster):
    _, sync = joined(config, cluster)
    (step,) = sync.answered(SyncGroupResponse(assignment=b"\0"), ErrorCode.NONE)
    assert isinstance(step, GroupFailed)


def test_a_refusal_for_good_names_the_group(config, cluster):
    _, sync = joined(config, cluster)
    (step,) = sync.answered(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(step, GroupFailed)
    assert str(step.error) == "group 'g': not allowed to use that group"
