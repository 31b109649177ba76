"""Truncation by leader epochs: KIP-101, KIP-279. Source: R-REP8.

Logs here are lists of (epoch, payload); the epoch cache is the real one.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.replication.leader_epochs import (
    LeaderEpochCache,
    divergence,
    truncation_offset,
)


class Replica:
    """A log in memory. The records below its start are what its producers' state stands for; None
    where it has never seen them."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str] | None] = []
        self.epochs = LeaderEpochCache()
        self.start = 0

    @property
    def end(self) -> int:
        return len(self.records)

    def lead(self, epoch: int, *payloads: str) -> "Replica":
        self.epochs.assign(epoch, self.end)
        self.records += [(epoch, payload) for payload in payloads]
        return self

    def cut(self, offset: int) -> None:
        if offset < self.start:
            self.begin_anew(offset)
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)

    def delete_to(self, start: int) -> None:
        if start > self.start:
            self.start = start
            self.epochs.truncate_from_start(start)

    def begin_anew(self, start: int) -> None:
        self.start = start
        self.records = [None] * start
        self.epochs.clear()

    def fetch_from(self, leader: "Replica", *, limit: int = 1000) -> str:
        """One fetch, as the fetcher does it: "truncated", "appended" or "caught up"."""
        if self.end < leader.start or (self.end > leader.end and self.start == self.end):
            self.begin_anew(leader.start)
            return "truncated"
        diverging = divergence(
            leader.epochs,
            log_end_offset=leader.end,
            fetch_offset=self.end,
            last_fetched_epoch=self.epochs.latest_epoch,
            log_start_offset=leader.start,
        )
        if diverging is not None:
            epoch, leader_end = diverging
            self.cut(
                truncation_offset(
                    self.epochs,
                    log_end_offset=self.end,
                    diverging_epoch=epoch,
                    leader_end_offset=leader_end,
                )
            )
            return "truncated"
        news = leader.records[self.end : self.end + limit]
        for record in news:
            assert record is not None
            epoch, payload = record
            if epoch != self.epochs.latest_epoch:
                self.epochs.assign(epoch, self.end)
            self.records.append((epoch, payload))
        self.delete_to(min(leader.start, self.end))
        return "appended" if news else "caught up"

    def follow(self, leader: "Replica") -> int:
        """Fetch until caught up; the number of truncations."""
        truncations = 0
        for _ in range(100):
            outcome = self.fetch_from(leader)
            truncations += outcome == "truncated"
            if outcome == "caught up":
                return truncations
        raise AssertionError("never catches up")

    def payloads(self) -> str:
        return "".join(record[1] for record in self.records if record is not None)


def copies(leader: Replica, count: int) -> list[Replica]:
    replicas = [Replica() for _ in range(count)]
    for replica in replicas:
        replica.follow(leader)
    return replicas


def test_a_follower_that_agrees_keeps_its_log():
    leader = Replica().lead(0, "a", "b")
    (follower,) = copies(leader, 1)
    assert follower.follow(leader) == 0
    assert follower.payloads() == "ab"


def test_an_empty_follower_never_diverges():
    leader = Replica().lead(3, "a")
    assert (
        divergence(leader.epochs, log_end_offset=1, fetch_offset=0, last_fetched_epoch=-1) is None
    )


def test_document_003_a_record_of_the_whole_isr_survives_two_leaders_that_die():
    """s1 acknowledges m and dies before the others know the new high watermark; s2 leads; s2 dies;
    s3 leads. A follower that cut to its own late high watermark would have lost m."""
    s1 = Replica().lead(0, "m")
    s2, s3 = copies(s1, 2)
    s2.lead(1)
    s3.follow(s2)
    assert s3.payloads() == "m"
    s3.lead(2)
    s1.follow(s3)
    s2.follow(s3)
    assert s1.payloads() == s2.payloads() == s3.payloads() == "m"


def test_kip_101_case_1_a_restarted_follower_keeps_what_its_high_watermark_did_not_cover():
    """B restarts with a high watermark of 1 and two records; A dies before B has fetched again."""
    a = Replica().lead(0, "1", "2")
    (b,) = copies(a, 1)
    # B asks A first and cuts nothing, whatever its own high watermark was.
    assert b.follow(a) == 0
    b.lead(1)
    assert a.follow(b) == 0
    assert a.payloads() == b.payloads() == "12"


def test_kip_101_case_2_a_leader_that_lost_its_tail_does_not_leave_two_histories():
    """Both crash; B comes back first without record 2, leads and writes another one there."""
    a = Replica().lead(0, "1", "2")
    b = Replica().lead(0, "1")
    b.lead(1, "3")
    assert a.follow(b) == 1
    assert a.records == b.records == [(0, "1"), (1, "3")]


def test_kip_279_fast_failovers_without_common_epochs_end_in_one_history():
    """A leads epochs 0 and 2, B leads 1 and 3, with an unclean election between: B's epoch 1 is
    unknown to A and A's epoch 2 to B; comparing only the last epoch would cut too little."""
    a = Replica().lead(0, "x")
    b = Replica().lead(0, "x")
    b.lead(1, "b", "c")
    a.lead(2, "d", "e", "f")
    b.lead(3, "g")
    a.follow(b)
    assert a.records == b.records
    assert a.payloads() == "xbcg"


def test_kip_279_a_follower_of_many_unknown_epochs_goes_back_step_by_step():
    a, b = Replica().lead(0, "x"), Replica().lead(0, "x")
    for epoch in (1, 3, 5, 7):
        a.lead(epoch, "a")
        b.lead(epoch + 1, "b")
    b.lead(9, "z")
    assert a.follow(b) > 1
    assert a.payloads() == "xbbbbz"


def test_an_epoch_that_wrote_nothing_costs_no_record():
    a = Replica().lead(0, "1", "2")
    (b,) = copies(a, 1)
    a.lead(1)
    b.lead(2)
    a.follow(b)
    assert a.payloads() == "12"


def test_an_epoch_above_the_leaders_own_is_an_error_and_cuts_nothing():
    leader = Replica().lead(1, "a")
    with pytest.raises(KafkaError) as raised:
        divergence(leader.epochs, log_end_offset=1, fetch_offset=1, last_fetched_epoch=4)
    assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_epoch_below_all_that_the_follower_knows_cuts_to_the_leaders_end_of_it():
    follower = Replica()
    follower.lead(5, "a", "b")
    cut = truncation_offset(
        follower.epochs, log_end_offset=2, diverging_epoch=3, leader_end_offset=0
    )
    assert cut == 0


def test_truncation_never_goes_above_the_end_of_the_log():
    follower = Replica().lead(1, "a")
    cut = truncation_offset(
        follower.epochs, log_end_offset=1, diverging_epoch=1, leader_end_offset=50
    )
    assert cut == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=25))
def test_any_history_of_elections_ends_with_equal_logs(history):
    """Even unclean ones: whoever leads writes, others fetch a little or nothing."""
    replicas = [Replica() for _ in range(3)]
    leader = replicas[0]
    for epoch, (number, writes, fetches) in enumerate(history):
        leader = replicas[number].lead(epoch, *(f"{epoch}." for _ in range(writes)))
        for step in range(fetches):
            follower = replicas[(number + 1 + step % 2) % 3]
            follower.fetch_from(leader, limit=1)
    leader.lead(len(history), "end")
    for replica in replicas:
        replica.follow(leader)
        assert replica.records == leader.records
        assert replica.epochs.entries[-1] == leader.epochs.entries[-1]


def test_a_follower_that_parted_below_the_leaders_start_keeps_nothing():
    a = Replica().lead(0, "1", "2")
    (b,) = copies(a, 1)
    a.lead(0, "lost", "lost", "lost")
    b.lead(1, "3", "4", "5")
    b.delete_to(4)
    assert a.follow(b) == 2
    assert (a.start, a.records) == (4, [None] * 4 + [(1, "5")])


def test_a_follower_that_agrees_up_to_the_leaders_start_keeps_all():
    a = Replica().lead(0, "1", "2")
    (b,) = copies(a, 1)
    a.lead(0, "lost")
    b.lead(1, "3")
    b.delete_to(2)
    assert a.follow(b) == 1
    assert (a.start, a.payloads()) == (2, "123")


@pytest.mark.parametrize("written", [2, 5])
def test_a_follower_of_a_leader_that_has_not_seen_what_is_below_its_start_keeps_nothing(written):
    """Whether or not the follower ends where the leader's log begins."""
    a = Replica().lead(0, *["lost"] * written)
    b = Replica()
    b.begin_anew(2)
    b.lead(1, "3", "4")
    a.follow(b)
    assert (a.start, a.records) == (2, [None, None, (1, "3"), (1, "4")])


def test_a_consumer_may_have_read_to_the_start_of_a_leader_that_has_not_seen_what_is_below():
    b = Replica()
    b.begin_anew(2)
    b.lead(1, "3", "4")
    assert divergence(b.epochs, log_end_offset=4, fetch_offset=2, last_fetched_epoch=0) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)),
        max_size=25,
    )
)
def test_below_the_leaders_start_a_follower_has_what_the_leader_had_or_nothing(history):
    """Elections are unclean here, so that one without deletions may lead after one with some."""
    replicas = [Replica() for _ in range(3)]
    leader = replicas[0]
    for epoch, (number, writes, fetches, deletes) in enumerate(history):
        leader = replicas[number].lead(epoch, *(f"{epoch}." for _ in range(writes)))
        leader.delete_to(min(leader.start + deletes, leader.end))
        for step in range(fetches):
            follower = replicas[(number + 1 + step % 2) % 3]
            follower.fetch_from(leader, limit=1)
    leader.lead(len(history), "end")
    for replica in replicas:
        replica.follow(leader)
        assert replica.end == leader.end
        for theirs, own in zip(replica.records, leader.records, strict=True):
            assert theirs == own or theirs is None or own is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=25))
def test_what_all_replicas_hold_is_never_cut(history):
    replicas = [Replica() for _ in range(3)]
    common: list[tuple[int, str]] = []
    for epoch, (number, writes) in enumerate(history):
        leader = replicas[number].lead(epoch, *(f"{epoch}." for _ in range(writes)))
        for replica in replicas:
            replica.follow(leader)
            assert replica.records[: len(common)] == common
        common = list(leader.records)
