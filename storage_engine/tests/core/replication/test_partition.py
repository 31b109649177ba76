"""The leader of a partition: high watermark, ISR, undecided writes. Source: R-REP3 to R-REP6."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.replication.partition import (
    UNKNOWN_OFFSET,
    Appended,
    CommittedIsr,
    Event,
    Flushed,
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrAccepted,
    IsrOutcomeUnknown,
    LagCheck,
    LagLimits,
    LeaderPartition,
    Leadership,
    PendingExpand,
    PendingShrink,
    ProposeIsr,
    ReadState,
    StateObserved,
)

LAG_MS = 10_000


def led_by_1(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    log_end_offset: int = 0,
    high_watermark: int = 0,
    lag_max_messages: int | None = None,
    flushed_end_offset: int | None = None,
) -> LeaderPartition:
    """Broker 1 leads under epoch 5, state version 7, replicas 1, 2, 3."""
    return LeaderPartition(
        leadership(isr=isr),
        local=1,
        log_end_offset=log_end_offset,
        high_watermark=high_watermark,
        now_ms=0,
        limits=LagLimits(lag_max_ms=LAG_MS, lag_max_messages=lag_max_messages),
        flushed_end_offset=flushed_end_offset,
    )


def leadership(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    assigned: tuple[int, ...] = (1, 2, 3),
) -> Leadership:
    return Leadership(
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=frozenset(isr),
        assigned_replicas=assigned,
    )


def fetch(replica: int, offset: int, end: int, *, now_ms: int = 1, eligible: bool = True):
    return FollowerFetched(
        replica=replica, fetch_offset=offset, log_end_offset=end, now_ms=now_ms, eligible=eligible
    )


def accepted(*isr: int, version: int = 8) -> IsrAccepted:
    return IsrAccepted(isr=frozenset(isr), partition_epoch=version)


def observed(*isr: int, version: int, leader: int = 1, leader_epoch: int = 5) -> StateObserved:
    return StateObserved(
        leader=leader, leader_epoch=leader_epoch, isr=frozenset(isr), partition_epoch=version
    )


# --- high watermark ---


def test_where_only_flushed_records_count_the_high_watermark_waits_for_the_leaders_own_disk():
    leader = led_by_1(isr=(1, 2), flushed_end_offset=0)
    assert leader.step(Appended(log_end_offset=10)) == []
    assert leader.step(fetch(2, 10, 10)) == []
    assert leader.step(Flushed(flushed_end_offset=7)) == [HighWatermarkAdvanced(high_watermark=7)]
    assert leader.step(Flushed(flushed_end_offset=10)) == [HighWatermarkAdvanced(high_watermark=10)]


def test_the_high_watermark_stays_where_it_was_when_only_flushed_records_begin_to_count():
    leader = led_by_1(isr=(1,))
    leader.step(Appended(log_end_offset=10))
    assert leader.step(Flushed(flushed_end_offset=3)) == []
    assert leader.high_watermark == 10
    leader.step(Appended(log_end_offset=12))
    assert leader.high_watermark == 10
    assert leader.step(Flushed(flushed_end_offset=None)) == [
        HighWatermarkAdvanced(high_watermark=12)
    ]


def test_high_watermark_is_the_smallest_end_offset_of_the_isr():
    leader = led_by_1()
    leader.step(Appended(log_end_offset=10))
    leader.step(fetch(2, 8, 10))
    effects = leader.step(fetch(3, 5, 10))
    assert effects == [HighWatermarkAdvanced(high_watermark=5)]
    assert leader.high_watermark == 5


def test_high_watermark_waits_for_members_that_have_not_fetched_from_this_leader():
    leader = led_by_1(log_end_offset=10, high_watermark=4)
    assert leader.follower_end_offset(3) == UNKNOWN_OFFSET
    assert leader.step(fetch(2, 10, 10)) == []
    assert leader.high_watermark == 4


def test_a_single_replica_advances_with_its_own_log():
    leader = led_by_1(isr=(1,))
    assert leader.step(Appended(log_end_offset=3)) == [HighWatermarkAdvanced(high_watermark=3)]


def test_followers_outside_the_isr_do_not_hold_the_high_watermark_back():
    leader = led_by_1(isr=(1, 2), log_end_offset=5, high_watermark=5)
    leader.step(fetch(3, 0, 5))
    leader.step(Appended(log_end_offset=10))
    assert leader.step(fetch(2, 10, 10)) == [HighWatermarkAdvanced(high_watermark=10)]


def test_high_watermark_counts_a_follower_whose_admission_is_not_yet_accepted():
    leader = led_by_1(isr=(1, 2), log_end_offset=10, high_watermark=10)
    assert leader.step(fetch(3, 10, 10)) == [
        ProposeIsr(isr=frozenset({1, 2, 3}), partition_epoch=7)
    ]
    leader.step(Appended(log_end_offset=20))
    assert leader.step(fetch(2, 20, 20)) == []
    assert leader.high_watermark == 10


def test_high_watermark_counts_a_laggard_until_its_removal_is_accepted():
    leader = led_by_1()
    leader.step(Appended(log_end_offset=10))
    leader.step(fetch(2, 10, 10, now_ms=LAG_MS))
    leader.step(LagCheck(now_ms=LAG_MS + 1, log_end_offset=10))
    assert leader.high_watermark == 0
    assert leader.step(accepted(1, 2)) == [HighWatermarkAdvanced(high_watermark=10)]


def test_high_watermark_never_moves_back():
    leader = led_by_1(isr=(1, 2))
    leader.step(Appended(log_end_offset=10))
    leader.step(fetch(2, 10, 10))
    assert leader.step(fetch(2, 3, 10)) == []
    assert leader.high_watermark == 10


def test_a_new_leader_takes_the_high_watermark_it_knew_but_not_above_its_log():
    assert led_by_1(log_end_offset=10, high_watermark=6).high_watermark == 6
    assert led_by_1(log_end_offset=10, high_watermark=60).high_watermark == 10


# --- expansion ---


def test_a_follower_at_the_high_watermark_and_the_epochs_start_is_admitted():
    leader = led_by_1(isr=(1,), log_end_offset=10, high_watermark=10)
    leader.step(fetch(2, 10, 10))
    assert leader.isr == PendingExpand(members=frozenset({1}), joining=2)


def test_a_follower_below_the_high_watermark_is_not_admitted():
    leader = led_by_1(isr=(1,), log_end_offset=10, high_watermark=10)
    assert leader.step(fetch(2, 9, 10)) == []


def test_a_follower_below_the_start_of_the_epoch_is_not_admitted():
    # It holds all that is known as committed, but maybe not all that is committed.
    leader = led_by_1(isr=(1, 2), log_end_offset=10, high_watermark=4)
    assert leader.step(fetch(3, 9, 10)) == []
    assert leader.step(fetch(3, 10, 10)) == [
        ProposeIsr(isr=frozenset({1, 2, 3}), partition_epoch=7)
    ]


def test_an_incarnation_that_is_not_registered_is_not_admitted():
    leader = led_by_1(isr=(1, 2), log_end_offset=10, high_watermark=10)
    assert leader.step(fetch(3, 10, 10, eligible=False)) == []


def test_only_one_change_is_under_way():
    leader = led_by_1(isr=(1,), log_end_offset=10, high_watermark=10)
    leader.step(fetch(2, 10, 10))
    assert leader.step(fetch(3, 10, 10)) == []
    leader.step(accepted(1, 2))
    assert leader.step(fetch(3, 10, 10)) == [
        ProposeIsr(isr=frozenset({1, 2, 3}), partition_epoch=8)
    ]


def test_a_broker_that_is_no_replica_changes_nothing():
    leader = led_by_1(log_end_offset=10)
    assert leader.step(fetch(9, 10, 10)) == []
    assert leader.follower_end_offset(9) == UNKNOWN_OFFSET


# --- shrinking ---


def test_a_silent_follower_leaves_after_the_lag_time_and_not_before():
    leader = led_by_1()
    leader.step(fetch(2, 10, 10, now_ms=LAG_MS))
    assert leader.step(LagCheck(now_ms=LAG_MS, log_end_offset=10)) == []
    assert leader.step(LagCheck(now_ms=LAG_MS + 1, log_end_offset=10)) == [
        ProposeIsr(isr=frozenset({1, 2}), partition_epoch=7)
    ]
    assert leader.isr == PendingShrink(members=frozenset({1, 2, 3}), leaving=frozenset({3}))


def test_a_follower_that_holds_everything_stays_though_it_is_silent():
    leader = led_by_1(isr=(1, 2))
    leader.step(fetch(2, 10, 10))
    assert leader.step(LagCheck(now_ms=100 * LAG_MS, log_end_offset=10)) == []


def test_a_follower_that_keeps_up_with_a_busy_leader_stays():
    # It is never at the leader's end, but always where the end was one fetch ago.
    leader = led_by_1(isr=(1, 2))
    for second in range(100):
        leader.step(fetch(2, 10 * second, 10 * second + 10, now_ms=1000 * second))
        end = LagCheck(now_ms=1000 * second, log_end_offset=10 * second + 10)
        assert leader.step(end) == []


def test_a_follower_that_fetches_but_falls_behind_leaves():
    leader = led_by_1(isr=(1, 2))
    leader.step(fetch(2, 0, 0, now_ms=0))
    proposals = []
    for second in range(1, 20):
        leader.step(fetch(2, second, 100 * second, now_ms=1000 * second))
        proposals += leader.step(LagCheck(now_ms=1000 * second, log_end_offset=100 * second))
    assert proposals == [ProposeIsr(isr=frozenset({1}), partition_epoch=7)]


def test_a_lag_in_messages_counts_only_where_it_is_set():
    far_behind = [fetch(2, 10, 100, now_ms=1), LagCheck(now_ms=2, log_end_offset=100)]
    without, with_limit = led_by_1(isr=(1, 2)), led_by_1(isr=(1, 2), lag_max_messages=50)
    assert [e for event in far_behind for e in without.step(event)] == [
        HighWatermarkAdvanced(high_watermark=10)
    ]
    with_limit.step(far_behind[0])
    assert with_limit.step(far_behind[1]) == [ProposeIsr(isr=frozenset({1}), partition_epoch=7)]


def test_the_leader_itself_never_leaves():
    leader = led_by_1(isr=(1,))
    assert leader.step(LagCheck(now_ms=100 * LAG_MS, log_end_offset=50)) == []


# --- undecided writes ---


def shrinking() -> LeaderPartition:
    leader = led_by_1()
    leader.step(Appended(log_end_offset=10))
    leader.step(fetch(2, 10, 10, now_ms=LAG_MS))
    leader.step(LagCheck(now_ms=LAG_MS + 1, log_end_offset=10))
    return leader


def test_an_unknown_outcome_is_settled_by_reading_the_state():
    leader = shrinking()
    assert leader.step(IsrOutcomeUnknown()) == [ReadState()]
    assert leader.isr.maximal == {1, 2, 3}


def test_a_lost_answer_that_was_written_is_taken_over():
    leader = shrinking()
    leader.step(IsrOutcomeUnknown())
    assert leader.step(observed(1, 2, version=8)) == [HighWatermarkAdvanced(high_watermark=10)]
    assert leader.isr == CommittedIsr(members=frozenset({1, 2}))
    assert leader.partition_epoch == 8


def test_a_lost_request_is_proposed_again():
    leader = shrinking()
    leader.step(IsrOutcomeUnknown())
    assert leader.step(observed(1, 2, 3, version=7)) == [
        ProposeIsr(isr=frozenset({1, 2}), partition_epoch=7)
    ]
    assert isinstance(leader.isr, PendingShrink)


def test_a_state_under_another_epoch_is_left_to_the_controllers_order():
    leader = shrinking()
    leader.step(IsrOutcomeUnknown())
    assert leader.step(observed(2, version=9, leader=2, leader_epoch=6)) == []
    assert leader.isr.maximal == {1, 2, 3}
    assert leader.high_watermark == 0


def test_an_undecided_answer_without_a_proposal_is_ignored():
    assert led_by_1().step(IsrOutcomeUnknown()) == []
    assert led_by_1().step(observed(1, version=9)) == []


def test_an_accepted_answer_of_an_older_version_changes_nothing():
    leader = led_by_1(log_end_offset=10)
    assert leader.step(accepted(1, version=7)) == []
    assert leader.isr == CommittedIsr(members=frozenset({1, 2, 3}))


# --- renewal ---


def test_a_renewed_leadership_drops_the_proposal_and_keeps_what_followers_hold():
    leader = shrinking()
    effects = leader.renew(
        leadership(isr=(1, 2), leader_epoch=6, partition_epoch=8), now_ms=LAG_MS + 2
    )
    assert effects == [HighWatermarkAdvanced(high_watermark=10)]
    assert leader.isr == CommittedIsr(members=frozenset({1, 2}))
    assert (leader.leader_epoch, leader.partition_epoch) == (6, 8)
    assert leader.follower_end_offset(2) == 10


def test_a_renewal_after_an_epoch_that_was_missed_forgets_what_followers_hold():
    """Another may have led in between, and followers have cut what they had from here."""
    leader = shrinking()
    assert leader.leader_epoch == 5
    effects = leader.renew(
        leadership(isr=(1, 2), leader_epoch=7, partition_epoch=9), now_ms=LAG_MS + 2
    )
    assert effects == []
    assert leader.follower_end_offset(2) == UNKNOWN_OFFSET
    # The whole lag time is theirs to show themselves.
    assert leader.step(LagCheck(now_ms=2 * LAG_MS + 2, log_end_offset=10)) == []
    assert leader.step(fetch(2, 10, 10)) == [HighWatermarkAdvanced(high_watermark=10)]


def test_a_renewed_leadership_forgets_brokers_that_are_no_replicas_any_more():
    leader = led_by_1(log_end_offset=10)
    leader.step(fetch(3, 10, 10))
    leader.renew(leadership(isr=(1, 2), leader_epoch=6, assigned=(1, 2, 4)), now_ms=5)
    assert leader.follower_end_offset(3) == UNKNOWN_OFFSET
    assert leader.step(fetch(3, 10, 10)) == []


def test_a_member_that_the_renewal_adds_gets_the_whole_lag_time():
    leader = led_by_1(isr=(1,), log_end_offset=10)
    leader.renew(leadership(isr=(1, 4), leader_epoch=6, assigned=(1, 4)), now_ms=50_000)
    assert leader.step(LagCheck(now_ms=50_000 + LAG_MS, log_end_offset=10)) == []


# --- properties ---

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 20)),
        st.tuples(st.just("fetch"), st.sampled_from((2, 3)), st.integers(0, 200)),
        st.tuples(st.just("tick"), st.integers(0, 8000)),
        st.tuples(st.just("answer"), st.sampled_from(("accepted", "lost", "not sent"))),
    ),
    max_size=80,
)


@given(EVENTS)
def test_nothing_above_what_every_possible_isr_holds_is_ever_committed(events):
    """A naive ZooKeeper decides; the ISR may be either set while the answer is unknown."""
    leader = led_by_1()
    end, now_ms = 0, 1
    holds = {2: -1, 3: -1}
    node = (frozenset({1, 2, 3}), 7)
    proposal: ProposeIsr | None = None
    last_high_watermark = 0
    for event in events:
        effects = []
        match event:
            case ("append", count):
                end += count
                effects = leader.step(Appended(log_end_offset=end))
            case ("fetch", replica, offset):
                offset = min(offset, end)
                holds[replica] = offset
                effects = leader.step(fetch(replica, offset, end, now_ms=now_ms))
            case ("tick", elapsed):
                now_ms += elapsed
                effects = leader.step(LagCheck(now_ms=now_ms, log_end_offset=end))
            case ("answer", outcome) if proposal is not None:
                asked, proposal = proposal, None
                if outcome != "not sent" and asked.partition_epoch == node[1]:
                    node = (asked.isr, node[1] + 1)
                if outcome == "accepted":
                    effects = leader.step(IsrAccepted(isr=node[0], partition_epoch=node[1]))
                else:
                    assert leader.step(IsrOutcomeUnknown()) == [ReadState()]
                    effects = leader.step(observed(*node[0], version=node[1]))
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                assert proposal is None, "two proposals at once"
                assert 1 in effect.isr
                proposal = effect
            elif isinstance(effect, HighWatermarkAdvanced):
                assert effect.high_watermark > last_high_watermark
                last_high_watermark = effect.high_watermark
                true_isr = node[0]
                assert all(holds[m] >= last_high_watermark for m in true_isr - {1})
        assert 1 in node[0]
        assert leader.high_watermark == last_high_watermark <= end


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2)),
        st.tuples(st.just("tick"), st.sampled_from([1, LAG_MS + 1])),
        st.tuples(st.just("accept"), st.booleans()),
        st.tuples(
            st.just("fetch"),
            st.sampled_from([2, 3, 4]),
            st.integers(0, 1),
            st.booleans(),
            st.sampled_from([-1, 7, 8]),
        ),
    ),
    max_size=40,
)


def state_of(leader: LeaderPartition) -> dict[str, object]:
    return {name: getattr(leader, name) for name in LeaderPartition.__slots__}


@given(STEPS)
def test_a_fetch_at_the_end_again_does_what_every_fetch_does(steps):
    quick, plain = led_by_1(), led_by_1()
    end, now_ms = 0, 1000
    for kind, *values in steps:
        now_ms += 1
        if kind == "append":
            end += values[0]
            event: Event = Appended(log_end_offset=end)
        elif kind == "tick":
            now_ms += values[0]
            event = LagCheck(now_ms=now_ms, log_end_offset=end)
        elif kind == "accept":
            isr = plain.isr
            proposed = isr.members if isinstance(isr, CommittedIsr) else isr.proposed
            event = IsrAccepted(isr=proposed, partition_epoch=plain.partition_epoch + values[0])
        else:
            replica, behind, eligible, broker_epoch = values
            offset = max(0, end - behind)
            event = FollowerFetched(
                replica=replica,
                fetch_offset=offset,
                log_end_offset=end,
                now_ms=now_ms,
                eligible=eligible,
                broker_epoch=broker_epoch,
            )
            if offset == end and quick.note_fetch_at_end(
                replica, end, now_ms=now_ms, broker_epoch=broker_epoch
            ):
                assert plain.step(event) == []
                assert state_of(quick) == state_of(plain)
                continue
        assert quick.step(event) == plain.step(event)
        assert state_of(quick) == state_of(plain)


def test_a_fetch_that_may_mean_more_is_not_taken_for_one_at_the_end_again():
    leader = led_by_1(isr=(1, 2), log_end_offset=5)

    def is_noted(replica: int, offset: int, broker_epoch: int = -1) -> bool:
        return leader.note_fetch_at_end(replica, offset, now_ms=1, broker_epoch=broker_epoch)

    assert not is_noted(2, 5)
    for replica in (2, 3):
        leader.step(FollowerFetched(replica=replica, fetch_offset=5, log_end_offset=5, now_ms=1))
    # An expansion is pending.
    assert not is_noted(2, 5)
    leader.step(IsrAccepted(isr=frozenset((1, 2, 3)), partition_epoch=8))
    assert is_noted(2, 5)
    assert is_noted(3, 5)
    assert not is_noted(2, 4)
    assert not is_noted(4, 5)
    assert not is_noted(2, 5, broker_epoch=9)
    leader.step(Appended(log_end_offset=6))
    assert not is_noted(2, 5)
