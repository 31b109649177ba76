"""What assignors read of members."""

from uuid import UUID

from storage_engine.core.groups.assignors.assignment import SubscribedMember
from storage_engine.core.groups.assignors.subscriptions import Claims, by_subscription

T, U, GONE = (UUID(int=number) for number in (1, 2, 3))
SIZES = {T: 3, U: 2}


def subscribed(*topics: UUID) -> SubscribedMember:
    return SubscribedMember(frozenset(topics), None, current={})


def test_topics_that_do_not_exist_make_no_difference_between_members():
    members = {
        "b": subscribed(T, GONE),
        "a": subscribed(T),
        "c": subscribed(GONE),
        "d": subscribed(),
    }
    assert by_subscription(members, SIZES) == {frozenset({T}): ["a", "b"]}


def test_topics_without_partitions_count_as_none():
    assert by_subscription({"a": subscribed(T)}, {T: 0}) == {}


def test_a_member_keeps_the_object_that_says_what_it_holds():
    current = {T: frozenset({0, 2}), U: frozenset({1})}
    assert Claims(SIZES).keep(current, frozenset(SIZES)) is current


def test_a_member_keeps_nothing_that_is_gone_or_not_subscribed_to():
    current = {T: frozenset({2, 3}), U: frozenset({0}), GONE: frozenset({0})}
    claims = Claims(SIZES)
    assert claims.keep(current, frozenset({T})) == {T: frozenset({2})}
    assert claims.unclaimed(T) == [0, 1]
    assert claims.unclaimed(U) == [0, 1]


def test_of_two_owners_the_first_keeps_a_partition():
    claims = Claims(SIZES)
    claims.keep({T: frozenset({0, 1})}, frozenset({T}))
    assert claims.keep({T: frozenset({1, 2})}, frozenset({T})) == {T: frozenset({2})}
