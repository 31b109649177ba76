"""The member of a group of the classic protocol as a state machine: step by step, and against the
real coordinator in a world where everything between them goes wrong."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.client.consumer.classic_membership import (
    ClassicMembership,
    HeartbeatAnswered,
    JoinAnswered,
    Release,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Stage,
    SyncAnswered,
    Take,
    TopicsChanged,
)
from storage_engine.client.consumer.membership import (
    CommitAnswered,
    Fail,
    FindCoordinator,
    MembershipTick,
    Polled,
    Released,
    Subscribed,
    Unsubscribed,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.client.consumer.membership_client import MembershipClient
from storage_engine.tests.core.groups.group_world import Violation, World

HEARTBEAT_MS = 3_000
POLL_MS = 60_000
HAPPENINGS = 1_500
SEEDS_TRIED = 40
"""Until a missing rule shows."""


def member(*, is_static: bool = False) -> ClassicMembership:
    return ClassicMembership(
        heartbeat_interval_ms=HEARTBEAT_MS, max_poll_interval_ms=POLL_MS, is_static=is_static
    )


def settled(*, is_static: bool = False) -> ClassicMembership:
    """A member, at time 0, that owns its part of generation 1."""
    made = member(is_static=is_static)
    assert made.step(Subscribed(now_ms=0)) == [SendJoin(member_id="")]
    required = JoinAnswered(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    assert made.step(required) == [SendJoin(member_id="m")]
    joined = JoinAnswered(error=ErrorCode.NONE, member_id="m", generation=1)
    assert made.step(joined) == [SendSync(member_id="m", generation=1)]
    synced = SyncAnswered(error=ErrorCode.NONE, now_ms=0, assignment=b"part")
    assert made.step(synced) == [Take(assignment=b"part")]
    return made


def test_heartbeats_come_one_at_a_time_and_in_their_interval():
    made = settled()
    assert made.due_ms() == HEARTBEAT_MS
    beat = SendHeartbeat(member_id="m", generation=1)
    assert made.step(MembershipTick(now_ms=HEARTBEAT_MS)) == [beat]
    assert made.step(MembershipTick(now_ms=2 * HEARTBEAT_MS)) == []
    assert made.step(HeartbeatAnswered(error=ErrorCode.NONE, now_ms=7_000)) == []
    assert made.due_ms() == 7_000 + HEARTBEAT_MS
    # Of another coordinator at once.
    lost = HeartbeatAnswered(error=ErrorCode.NETWORK_EXCEPTION, now_ms=11_000)
    assert made.step(lost) == [FindCoordinator()]
    assert made.step(MembershipTick(now_ms=11_000)) == [beat]


@pytest.mark.parametrize(
    "event",
    [
        HeartbeatAnswered(error=ErrorCode.REBALANCE_IN_PROGRESS, now_ms=1),
        CommitAnswered(error=ErrorCode.REBALANCE_IN_PROGRESS, generation=1),
        TopicsChanged(),
        Subscribed(now_ms=1),
    ],
)
def test_it_joins_the_next_generation_when_it_has_let_go(event):
    made = settled()
    assert made.step(event) == [Release(lost=False)]
    # Meanwhile it lives.
    beats = made.step(MembershipTick(now_ms=HEARTBEAT_MS + 1))
    assert beats == [SendHeartbeat(member_id="m", generation=1)]
    assert made.step(Released()) == [SendJoin(member_id="m")]


@pytest.mark.parametrize(
    ("error", "name"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")]
)
def test_who_was_put_out_has_lost_its_part(error, name):
    made = settled()
    assert made.step(HeartbeatAnswered(error=error, now_ms=1)) == [Release(lost=True)]
    assert made.due_ms() is None
    assert made.step(Released()) == [SendJoin(member_id=name)]


def test_one_that_must_let_go_twice_joins_when_it_has_let_go_twice():
    """The second of them would else be taken for the end of the part that comes next."""
    made = settled()
    rebalance = HeartbeatAnswered(error=ErrorCode.REBALANCE_IN_PROGRESS, now_ms=1)
    assert made.step(rebalance) == [Release(lost=False)]
    lost = HeartbeatAnswered(error=ErrorCode.ILLEGAL_GENERATION, now_ms=2)
    assert made.step(lost) == [Release(lost=True)]
    assert made.step(Released()) == []
    assert made.owns
    assert made.step(Released()) == [SendJoin(member_id="m")]
    assert not made.owns


def test_what_is_unsubscribed_waits_for_nothing():
    made = settled()
    assert made.step(TopicsChanged()) == [Release(lost=False)]
    made.step(Unsubscribed())
    assert made.step(Subscribed(now_ms=1)) == [SendJoin(member_id="")]


def test_who_does_not_poll_leaves_and_comes_back_when_it_does():
    made = settled()
    assert made.step(MembershipTick(now_ms=POLL_MS)) == [SendLeave(member_id="m")]
    assert made.step(Polled(now_ms=0)) == []
    assert made.stage is Stage.POLL_TIMED_OUT
    assert made.step(Polled(now_ms=POLL_MS + 1)) == [Release(lost=True)]
    assert made.step(Released()) == [SendJoin(member_id="")]


def test_a_static_member_does_not_leave():
    made = settled(is_static=True)
    assert made.step(Unsubscribed()) == []
    assert made.step(Subscribed(now_ms=1)) == [SendJoin(member_id="m")]
    assert settled().step(Unsubscribed()) == [SendLeave(member_id="m")]


@pytest.mark.parametrize("error", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INVALID_GROUP_ID])
def test_what_is_for_good_is_told(error):
    made = settled()
    assert made.step(HeartbeatAnswered(error=error, now_ms=1)) == [Fail(error=error)]
    assert made.step(MembershipTick(now_ms=POLL_MS)) == []


def test_a_commit_of_an_older_generation_says_nothing():
    made = settled()
    late = CommitAnswered(error=ErrorCode.ILLEGAL_GENERATION, generation=0)
    assert made.step(late) == []


# --- with the coordinator ---


def live(seed: int, client: type[MembershipClient] = MembershipClient) -> World:
    world = World(seed, client=client)
    for _ in range(HAPPENINGS):
        world.happen()
    world.settle()
    return world


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
@example(47542621)  # Let go twice, for two reasons, and had another part in between.
def test_members_and_coordinator_share_everything_in_the_end(seed):
    live(seed)


class _JoinsAtOnce(MembershipClient):
    """Joins before its owner has let go."""

    def apply(self, change):
        if isinstance(change, Release):
            self.owned = frozenset()
        else:
            super().apply(change)

    def tell(self, event):
        super().tell(event)
        if self.membership.stage is Stage.REVOKING:
            self.tell(Released())


class _NeverRejoins(MembershipClient):
    """Goes on with what it has when the group rebalances."""

    def answer(self, answer, error):
        super().answer(answer, ErrorCode.NONE if self.what == "heartbeat" else error)

    def commit(self):
        """It would hear of it."""


@pytest.mark.parametrize("client", [_JoinsAtOnce, _NeverRejoins])
def test_a_missing_rule_shows(client):
    with pytest.raises((Violation, AssertionError)):
        for seed in range(SEEDS_TRIED):
            live(seed, client)
