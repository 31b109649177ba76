"""The member of a group of the consumer protocol as a state machine: step by step, and against the
real coordinator in a world where everything between them goes wrong."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.consumer.consumer_membership import (
    UNRELEASED_MAX_MS,
    UNRELEASED_PAUSE_MS,
    BeatAnswered,
    ConsumerMembership,
    ConsumerStage,
    ReleasePartitions,
    SendBeat,
    SendFarewell,
    TakePartitions,
    TopicsKnown,
    without,
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
from storage_engine.tests.client.consumer.consumer_membership_client import MembershipMember, parts
from storage_engine.tests.core.groups.consumer.consumer_members import Violation
from storage_engine.tests.core.groups.consumer.consumer_world import World

HAPPENINGS = 2_500
SEEDS_TRIED = 40
"""Until a missing rule shows."""
INTERVAL_MS = 5_000
POLL_MS = 60_000
T, U = UUID(int=1), UUID(int=2)


def part(*numbers, topic=T):
    return {topic: frozenset(numbers)}


def member(*, is_static=False):
    return ConsumerMembership(max_poll_interval_ms=POLL_MS, is_static=is_static)


def full(epoch, owned):
    return SendBeat(epoch=epoch, is_full=True, tells_subscription=True, owned=owned)


def news(epoch, owned):
    """A heartbeat that says what the owner has."""
    return SendBeat(epoch=epoch, is_full=False, tells_subscription=False, owned=owned)


def plain(epoch):
    return SendBeat(epoch=epoch, is_full=False, tells_subscription=False, owned=None)


def answer(epoch, assignment=None, *, now_ms=0):
    return BeatAnswered(
        now_ms=now_ms,
        error=ErrorCode.NONE,
        epoch=epoch,
        interval_ms=INTERVAL_MS,
        assignment=assignment,
    )


def refusal(error, *, now_ms=0, message=None):
    return BeatAnswered(now_ms=now_ms, error=error, message=message)


def settled(*, is_static=False):
    """A member, at time 0 and in epoch 1, whose owner has three partitions, as it has told."""
    made = member(is_static=is_static)
    assert made.step(Subscribed(now_ms=0)) == [full(0, {})]
    assigned = part(0, 1, 2)
    assert made.step(answer(1, assigned)) == []
    assert made.step(TopicsKnown(frozenset({T}))) == [TakePartitions(assigned), news(1, assigned)]
    assert made.step(answer(1)) == []
    return made


def test_heartbeats_come_one_at_a_time_in_the_interval_that_the_coordinator_gives():
    made = settled()
    assert made.due_ms() == INTERVAL_MS
    assert made.step(MembershipTick(now_ms=INTERVAL_MS)) == [plain(1)]
    assert made.step(MembershipTick(now_ms=2 * INTERVAL_MS)) == []
    assert made.step(answer(1, now_ms=7_000)) == []
    assert made.due_ms() == 7_000 + INTERVAL_MS


def test_a_member_that_joins_without_a_part_tells_its_owner_so():
    made = member()
    made.step(Subscribed(now_ms=0))
    assert made.step(answer(1, {})) == [TakePartitions({})]
    assert made.stage is ConsumerStage.MEMBER


def test_only_what_is_taken_away_is_released_and_told_once_the_owner_has_let_go():
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    assert made.step(answer(1, part(0, 1))) == [ReleasePartitions(lost=False, partitions=part(2))]
    # A slow owner keeps it, and the coordinator hears of the member without it.
    assert made.owned == part(0, 1, 2)
    assert made.step(MembershipTick(now_ms=2 * INTERVAL_MS)) == [plain(1)]
    assert made.step(answer(1)) == []
    assert made.step(Released()) == [news(1, part(0, 1))]
    assert made.step(answer(2)) == []
    assert made.epoch == 2


def test_what_is_taken_away_goes_before_what_is_new_comes():
    """A topic that was made anew has another id and the same name."""
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    again = part(0, topic=U)
    assert made.step(answer(2, again)) == [ReleasePartitions(lost=False, partitions=part(0, 1, 2))]
    assert made.step(TopicsKnown(frozenset({U}))) == []
    assert made.step(Released()) == [TakePartitions(again), news(2, again)]


def test_what_is_taken_away_while_the_owner_lets_go_of_other_partitions_is_released_next():
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(1, part(0, 1)))
    made.step(MembershipTick(now_ms=2 * INTERVAL_MS))
    assert made.step(answer(1, part(0))) == []
    assert made.step(Released()) == [
        ReleasePartitions(lost=False, partitions=part(1)),
        news(1, part(0, 1)),
    ]


def test_a_topic_whose_name_is_not_known_yet_is_taken_when_it_is():
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    more = {**part(0, 1, 2), **part(0, 1, topic=U)}
    assert made.step(answer(2, more)) == []
    assert made.unknown_topics == {U}
    assert made.step(TopicsKnown(frozenset({U}))) == [
        TakePartitions(part(0, 1, topic=U)),
        news(2, more),
    ]
    assert made.unknown_topics == frozenset()


def without_names(epoch):
    """A member with partitions whose names its owner does not know, and a heartbeat under way that
    says what the owner has."""
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(epoch, {**part(0, 1), **part(0, topic=U)}))
    assert made.step(Released()) == [news(epoch, part(0, 1))]
    return made


def test_nothing_is_taken_while_a_heartbeat_is_on_its_way_that_leaves_it_out():
    """The coordinator may take it for given up, and give it to another."""
    made = without_names(1)
    assert made.step(TopicsKnown(frozenset({U}))) == []
    both = {**part(0, 1), **part(0, topic=U)}
    assert made.step(answer(2)) == [TakePartitions(part(0, topic=U)), news(2, both)]


def test_nothing_is_taken_after_such_a_heartbeat_is_lost_until_the_next_is_answered():
    made = without_names(1)
    made.step(TopicsKnown(frozenset({U})))
    lost = refusal(ErrorCode.NETWORK_EXCEPTION)
    assert made.step(lost) == [FindCoordinator(), full(1, part(0, 1))]
    assert made.step(answer(2, part(0, 1))) == [news(2, part(0, 1))]
    assert made.step(answer(2)) == []
    assert made.owned == part(0, 1)


def test_what_is_taken_away_before_the_owner_got_it_is_told_too():
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(2, {**part(0, 1, 2), **part(0, topic=U)}))
    made.step(MembershipTick(now_ms=2 * INTERVAL_MS))
    # The coordinator waits for it to be left out.
    assert made.step(answer(2, part(0, 1, 2))) == [news(2, part(0, 1, 2))]
    assert made.step(answer(3)) == []


def test_a_subscription_that_changes_is_told_at_once_and_loses_nothing():
    made = settled()
    told = SendBeat(epoch=1, is_full=False, tells_subscription=True, owned=None)
    assert made.step(Subscribed(now_ms=1)) == [told]
    # Another change while that is under way.
    assert made.step(Subscribed(now_ms=2)) == []
    assert made.step(answer(1)) == [told]
    assert made.step(answer(1)) == []
    assert made.owned == part(0, 1, 2)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_after_a_lost_answer_it_says_everything_again_also_what_it_is_letting_go(error):
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(1, part(0, 1)))
    made.step(MembershipTick(now_ms=2 * INTERVAL_MS))
    assert made.step(refusal(error)) == [FindCoordinator(), full(1, part(0, 1, 2))]
    assert made.step(Released()) == []
    assert made.step(answer(1, part(0, 1))) == [news(1, part(0, 1))]


def test_a_join_whose_answer_is_lost_is_sent_again():
    made = member()
    made.step(Subscribed(now_ms=0))
    lost = refusal(ErrorCode.NETWORK_EXCEPTION)
    assert made.step(lost) == [FindCoordinator(), full(0, {})]
    made.step(answer(3, part(1)))
    assert made.step(TopicsKnown(frozenset({T}))) == [TakePartitions(part(1)), news(3, part(1))]


FENCED = [
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
]


@pytest.mark.parametrize("error", FENCED)
def test_who_is_fenced_gives_up_everything_and_joins_anew(error):
    made = settled()
    joins = made.joins
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    assert made.step(refusal(error)) == [ReleasePartitions(lost=True)]
    assert made.joins > joins
    assert made.due_ms() is None
    # It does not heartbeat while the owner has something.
    assert made.step(MembershipTick(now_ms=10 * INTERVAL_MS)) == []
    assert made.step(Released()) == [full(0, {})]
    made.step(answer(4, part(2)))
    assert made.step(TopicsKnown(frozenset({T}))) == [TakePartitions(part(2)), news(4, part(2))]


@pytest.mark.parametrize("error", FENCED)
def test_who_is_fenced_while_its_owner_lets_go_joins_when_it_has_let_go_twice(error):
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(1, part(0)))
    made.step(MembershipTick(now_ms=2 * INTERVAL_MS))
    assert made.step(refusal(error)) == [ReleasePartitions(lost=True)]
    assert made.step(Released()) == []
    assert made.owned == part(0)
    assert made.step(Released()) == [full(0, {})]


@pytest.mark.parametrize("error", FENCED)
def test_who_is_fenced_without_a_part_joins_at_once(error):
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    made.step(answer(1, {}))
    made.step(Released())
    assert made.step(refusal(error)) == [full(0, {})]


@pytest.mark.parametrize("error", FENCED)
def test_who_is_fenced_when_it_joins_takes_back_its_earlier_join_first(error):
    made = member()
    made.step(Subscribed(now_ms=0))
    effects = made.step(refusal(error))
    assert effects == [SendFarewell(epoch=-1), FindCoordinator(), full(0, {})]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    ],
)
def test_a_refused_commit_makes_it_ask_the_coordinator_at_once(error):
    made = settled()
    assert made.step(CommitAnswered(error=error, generation=1)) == []
    assert made.due_ms() == 0
    assert made.step(MembershipTick(now_ms=1)) == [plain(1)]


def test_an_instance_id_that_another_has_is_waited_for():
    made = member(is_static=True)
    made.step(Subscribed(now_ms=0))
    taken = refusal(ErrorCode.UNRELEASED_INSTANCE_ID)
    # A join of its own whose answer was lost is taken back.
    assert made.step(taken) == [SendFarewell(epoch=-2)]
    assert made.due_ms() == UNRELEASED_PAUSE_MS
    assert made.step(MembershipTick(now_ms=UNRELEASED_PAUSE_MS)) == [full(0, {})]
    assert made.step(refusal(ErrorCode.UNRELEASED_INSTANCE_ID, now_ms=UNRELEASED_PAUSE_MS)) == []
    made.step(MembershipTick(now_ms=2 * UNRELEASED_PAUSE_MS))
    assert made.step(answer(5, {})) == [TakePartitions({})]


def test_an_instance_id_that_another_keeps_is_an_error_in_the_end():
    made = member(is_static=True)
    made.step(Subscribed(now_ms=0))
    made.step(refusal(ErrorCode.UNRELEASED_INSTANCE_ID))
    made.step(Polled(now_ms=UNRELEASED_MAX_MS))
    made.step(MembershipTick(now_ms=UNRELEASED_MAX_MS))
    late = refusal(ErrorCode.UNRELEASED_INSTANCE_ID, now_ms=UNRELEASED_MAX_MS)
    assert made.step(late) == [Fail(error=ErrorCode.UNRELEASED_INSTANCE_ID)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_what_is_for_good_is_told_with_the_coordinators_words(error):
    made = settled()
    made.step(MembershipTick(now_ms=INTERVAL_MS))
    assert made.step(refusal(error, message="no")) == [Fail(error=error, message="no")]
    assert made.step(MembershipTick(now_ms=10 * INTERVAL_MS)) == []
    # Subscribed anew, it lets go first of what it may have no more.
    assert made.step(Subscribed(now_ms=1)) == [ReleasePartitions(lost=True)]
    assert made.step(Released()) == [full(0, {})]


@pytest.mark.parametrize(("is_static", "epoch"), [(False, -1), (True, -2)])
def test_who_unsubscribes_leaves(is_static, epoch):
    made = settled(is_static=is_static)
    assert made.step(Unsubscribed()) == [SendFarewell(epoch=epoch)]
    assert made.step(Unsubscribed()) == []
    assert made.due_ms() is None
    assert made.step(Subscribed(now_ms=1)) == [full(0, {})]


def test_who_unsubscribes_before_it_has_joined_leaves_too():
    made = member()
    made.step(Subscribed(now_ms=0))
    assert made.step(Unsubscribed()) == [SendFarewell(epoch=-1)]
    # The answer to the join is none to a later one.
    assert made.step(answer(1, part(0))) == []
    assert made.stage is ConsumerStage.OUT


@pytest.mark.parametrize(("is_static", "epoch"), [(False, -1), (True, -2)])
def test_who_does_not_poll_leaves_and_comes_back_when_it_does(is_static, epoch):
    made = settled(is_static=is_static)
    assert made.step(MembershipTick(now_ms=POLL_MS)) == [SendFarewell(epoch=epoch)]
    assert made.stage is ConsumerStage.POLL_TIMED_OUT
    assert made.step(Polled(now_ms=0)) == []
    assert made.step(Polled(now_ms=POLL_MS + 1)) == [ReleasePartitions(lost=True)]
    assert made.step(Released()) == [full(0, {})]


def test_a_heartbeat_that_is_under_way_does_not_keep_a_member_that_does_not_poll():
    made = settled()
    made.step(MembershipTick(now_ms=POLL_MS - 1))
    assert made.due_ms() == POLL_MS
    assert made.step(MembershipTick(now_ms=POLL_MS)) == [SendFarewell(epoch=-1)]
    assert made.step(answer(2, part(0))) == []
    assert made.stage is ConsumerStage.POLL_TIMED_OUT


def test_partitions_are_subtracted_by_topic():
    these = {T: frozenset({0, 1}), U: frozenset({0})}
    assert without(these, {T: frozenset({1, 2}), U: frozenset({0})}) == {T: frozenset({0})}


# --- with the coordinator ---


def live(seed, client=MembershipMember):
    world = World(seed)
    world.members = [
        client(world, f"m{number}", f"i{number}" if number % 3 == 0 else None)
        for number in range(5)
    ]
    for each in world.members:
        each.start()
    for _ in range(HAPPENINGS):
        world.happen()
    world.settle()
    return world


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_no_partition_has_two_owners_and_all_is_shared_out_in_the_end(seed):
    live(seed)


def test_members_commit_and_hand_over_in_spite_of_the_faults():
    worlds = [live(seed) for seed in range(4)]
    assert sum(world.moves for world in worlds) > 50
    assert sum(world.commits for world in worlds) > 30


class _TellsEarly(MembershipMember):
    """Tells that it has let go before its owner has."""

    def tell(self, event):
        super().tell(event)
        while self.membership._releases:
            super().tell(Released())

    def apply(self, change, joins):
        if isinstance(change, TakePartitions):
            self.joins = joins
            self.held |= parts(change.partitions)
            self.world.check_holders(self)
        else:
            self.held -= self.held if change.partitions is None else parts(change.partitions)


class _KeepsItAll(MembershipMember):
    """Says that it has let go, and goes on."""

    def apply(self, change, joins):
        if isinstance(change, TakePartitions):
            self.joins = joins
            self.held |= parts(change.partitions)
            self.world.check_holders(self)
        else:
            self.tell(Released())


@pytest.mark.parametrize("client", [_TellsEarly, _KeepsItAll])
def test_a_missing_rule_shows(client):
    with pytest.raises((Violation, AssertionError)):
        for seed in range(SEEDS_TRIED):
            live(seed, client)
