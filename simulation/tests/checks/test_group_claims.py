"""Two members never hold one partition, as far as the answers to them say."""

from uuid import UUID

import pytest

from simulation.checks.group_claims import GroupClaims, LateRequest, MemberClaims
from simulation.checks.ledger import InvariantViolation

TOPIC = UUID(int=1)
SHARE, OTHER = (TOPIC, 0), (TOPIC, 1)
SESSION_MS = 100


class Group:
    """Two members and a clock."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.is_void = False
        self.claims = GroupClaims(lambda: self.now_ms, lambda: self.is_void)
        self.first, self.second = self.claims.member("first"), self.claims.member("second")

    def give(self, member: MemberClaims, *, sent_ms: int | None = None) -> None:
        """A member gets the partition by the answer to what it sent then, or just now."""
        member.safe_until_ms = (self.now_ms if sent_ms is None else sent_ms) + SESSION_MS
        self.claims.take(member, [SHARE])


@pytest.fixture
def group() -> Group:
    made = Group()
    made.give(made.first)
    return made


def test_a_partition_of_a_living_member_is_given_to_nobody_else(group):
    with pytest.raises(InvariantViolation, match="first"):
        group.give(group.second)


def test_a_partition_is_free_once_its_member_has_let_it_go(group):
    group.first.held.remove(SHARE)
    group.give(group.second)


def test_a_partition_is_free_when_the_session_of_its_member_may_have_ended(group):
    group.now_ms += SESSION_MS
    group.give(group.second)


def test_a_session_lasts_until_its_last_moment(group):
    group.now_ms += SESSION_MS - 1
    with pytest.raises(InvariantViolation):
        group.give(group.second)


def test_an_answer_that_comes_after_the_session_it_began_gives_nothing(group):
    group.give(group.second, sent_ms=group.now_ms - SESSION_MS)


def test_a_late_request_without_the_partition_may_free_it(group):
    group.first.late.append(LateRequest(frozenset({OTHER}), lambda: True))
    group.give(group.second)


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(LateRequest(frozenset({SHARE}), lambda: True), id="it names the partition"),
        pytest.param(LateRequest(frozenset(), lambda: False), id="it can't arrive any more"),
    ],
)
def test_other_late_requests_free_nothing(group, late):
    group.first.late.append(late)
    with pytest.raises(InvariantViolation):
        group.give(group.second)


def test_nothing_is_promised_once_the_log_was_lost(group):
    group.is_void = True
    group.give(group.second)
