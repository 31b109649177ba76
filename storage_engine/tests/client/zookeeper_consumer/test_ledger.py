"""R-CLI3: what a stream may hand out, and what counts as consumed."""

import threading

import pytest

from storage_engine.client.zookeeper_consumer.ledger import Claim, StreamLedger
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_with_sleep_ms

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Session:
    """One whose lease the test sets."""

    def __init__(self) -> None:
        self.lease_end_monotonic_ms = monotonic_with_sleep_ms() + 3_600_000


def ledger(**offsets: int | None) -> StreamLedger:
    made = StreamLedger(Session())
    made.give({TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()})
    return made


def claims_of(made: StreamLedger) -> dict[TopicPartition, Claim]:
    claims = made.begin()
    assert claims is not None
    return claims


def test_what_was_handed_out_counts_once_the_next_is_asked_for():
    made = ledger(p0=5, p1=None)
    claims = claims_of(made)
    assert made.positions() == {A: 5}
    assert made.hand_out(claims[A], 6, consumes=True)
    assert made.positions() == {A: 5}
    assert made.hand_out(claims[B], 1, consumes=True)
    assert made.positions() == {A: 6}
    made.begin()
    made.found({A: 9}, claims)
    assert made.positions() == {A: 9, B: 1}


def test_a_thread_that_commits_settles_its_own_stream_only():
    made = ledger(p0=0)
    assert made.hand_out(claims_of(made)[A], 1)
    other = threading.Thread(target=made.settle)
    other.start()
    other.join()
    assert made.positions() == {A: 0}
    made.settle()
    assert made.positions() == {A: 1}


def test_nothing_is_handed_out_of_what_was_taken_away_or_given_anew():
    made = ledger(p0=0, p1=0)
    old = claims_of(made)
    assert made.hand_out(old[A], 3)
    assert made.revoke([A, TopicPartition("t", 9)]) == {A: 0}
    assert not made.hand_out(old[A], 4)
    made.give({A: 0})
    assert not made.hand_out(old[A], 4), "its reader has to begin anew"
    new = claims_of(made)
    assert new[A] is not old[A] and new[B] is old[B]
    assert made.positions() == {A: 0, B: 0}, "what the old claim was read to is forgotten"
    assert made.hand_out(new[A], 1)


def test_nothing_is_handed_out_when_the_session_may_have_expired():
    session = Session()
    made = StreamLedger(session)
    made.give({A: 0})
    claim = claims_of(made)[A]
    session.lease_end_monotonic_ms = monotonic_with_sleep_ms()
    assert not made.may_hand_out
    assert not made.hand_out(claim, 1)
    session.lease_end_monotonic_ms = monotonic_with_sleep_ms() + 3_600_000
    assert made.hand_out(claim, 1)


def test_a_closed_stream_ends_and_says_why():
    made = ledger(p0=0)
    claim = claims_of(made)[A]
    made.close()
    assert made.begin() is None and not made.hand_out(claim, 1)
    made.close(HeadraceError("because"))
    with pytest.raises(HeadraceError, match="because"):
        made.begin()
