"""The counterexamples of the batch commit, each by name: it passes with the rules, and fails when
its rule is taken out. Source: R-SPARK2, the page on the exactly-once sink."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    MicroBatchHeartbeat,
    VerifyMember,
)
from storage_engine.core.transactions.transaction_state import LedgerKey, MemberKey
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.tests.core.transactions.coordinator_bench import (
    OUT0,
    OUT1,
    TIMEOUT_MS,
    CoordinatorBench,
    error,
)
from storage_engine.tests.core.transactions.missing_rules import (
    AbortsWhatIsListed,
    AnswersAtOnce,
    CommitsWhatIsOpen,
    DeafGuards,
    DoesNotCarry,
    DoesNotWait,
    DropsAtOnce,
    ForgetsTheBatchId,
    HasNoTimeout,
    KeepsPartitionsInMemory,
    KeyedBySink,
    KnowsAttemptsByTheirTask,
    LooksAtDrainedFirst,
    LooksAtMembersFirst,
    TimesEachByItself,
    with_rules,
)

# --- 1: a delayed produce after its marker ---


def delayed_produce(guards: VerificationGuards) -> None:
    bench = CoordinatorBench()
    member = bench.attempt(0, OUT0)

    def enlisted() -> bool:
        answer = bench.ask(
            lambda request: VerifyMember(
                request=request,
                producer_id=member,
                producer_epoch=0,
                partitions=frozenset({OUT0}),
            )
        )
        return error(answer) is ErrorCode.NONE

    assert not guards.is_open(member, 0)
    assert guards.note_answer(guards.ask(member, 0), enlisted=enlisted())
    assert guards.is_open(member, 0), "the first batch may be appended"
    said_before = enlisted()
    bench.pass_time(TIMEOUT_MS)
    bench.settle()
    assert bench.outcome(member) == {False}
    guards.note_marker(member)
    assert not guards.is_open(member, 0), "the delayed batch would open it again"
    assert not guards.note_answer(guards.ask(member, 0), enlisted=enlisted())
    # The word was on its way when the marker came.
    other = bench.attempt(1, OUT0)
    question = guards.ask(other, 0)
    guards.note_marker(other)
    assert not guards.note_answer(question, enlisted=said_before)


def test_1_a_delayed_produce_does_not_land_after_its_marker():
    delayed_produce(VerificationGuards())
    with pytest.raises(AssertionError):
        delayed_produce(DeafGuards())


# --- 2: a duplicate of CommitMicroBatch while its members are being committed ---


def duplicate_commit(factory) -> None:
    bench = CoordinatorBench(factory)
    member = bench.attempt(0)
    assert error(bench.commit(0, member, replicate=False)) is None
    assert error(bench.commit(0, member)) is ErrorCode.CONCURRENT_TRANSACTIONS, "not replicated"
    assert error(bench.commit(0, member)) is ErrorCode.ALREADY_COMMITTED, "while marking"
    bench.settle()
    assert error(bench.commit(0, member)) is ErrorCode.ALREADY_COMMITTED, "after"
    bench.settle()
    assert bench.outcome(member) == {True}


def test_2_a_duplicate_commit_aborts_nothing_that_is_being_committed():
    duplicate_commit(TransactionCoordinator)
    with pytest.raises(AssertionError):
        duplicate_commit(with_rules(AbortsWhatIsListed))


def test_a_join_behind_a_commit_that_may_be_lost_waits_for_it():
    """Else the next batch's tasks would ask again after a pause."""
    bench = CoordinatorBench()
    member = bench.attempt(0)
    assert bench.commit(0, member, replicate=False) is None
    requests = []
    for batch in (1, 0):
        assert bench.join(batch, replicate=False) is None, "the commit may be lost"
        requests.append(bench._requests)
    bench.replicate()
    codes = [error(bench.answers[each]) for each in requests]
    assert codes == [ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED]


def test_a_join_is_not_answered_by_a_commit_that_is_lost():
    bench = CoordinatorBench()
    member = bench.attempt(0)
    bench.commit(0, member, replicate=False)
    for batch in (1, 0):
        bench.join(batch, replicate=False)
    answered = dict(bench.answers)
    bench.fail_over()
    bench.settle()
    assert bench.answers == answered
    assert error(bench.join(0)) is ErrorCode.NONE, "it is not committed"
    assert error(bench.commit(0, member)) is ErrorCode.NONE


# --- 3: members dropped before their markers are written ---


def failover_between_markers(factory, pause: int) -> None:
    """The coordinator is lost after `pause` of the six markers."""
    bench = CoordinatorBench(factory)
    winner, other, loser = (bench.attempt(0) for _ in range(3))
    assert error(bench.commit(0, winner, other)) is ErrorCode.NONE
    for key in sorted(bench.markers)[:pause]:
        bench.write_markers(key)
    bench.replicate()
    bench.fail_over()
    bench.settle()
    bench.pass_time(TIMEOUT_MS)
    bench.settle()
    for member, end in ((winner, {True}), (other, {True}), (loser, {False})):
        assert [bench.written.get((member, out)) for out in (OUT0, OUT1)] == [end, end]
    ledger = bench.coordinator.batches.ledger(LedgerKey("s", "q"))
    assert ledger is not None and (ledger.last, ledger.ends) == (0, ())
    assert not list(bench.coordinator.batches.members())


@pytest.mark.parametrize("pause", range(6))
def test_3_a_failover_between_any_two_markers_forgets_none(pause):
    failover_between_markers(TransactionCoordinator, pause)
    with pytest.raises(AssertionError):
        failover_between_markers(with_rules(DropsAtOnce), pause)


# --- 4: the next record replaces one whose markers are pending ---


def next_commit_while_marking(factory) -> None:
    bench = CoordinatorBench(factory)
    first = bench.attempt(0)
    assert error(bench.commit(0, first)) is ErrorCode.NONE
    second = bench.attempt(1)
    bench.commit(1, second)
    bench.fail_over()
    bench.pass_time(TIMEOUT_MS)
    bench.settle()
    assert bench.outcome(first) == {True}


def test_4_a_committed_member_outlives_the_next_record():
    next_commit_while_marking(TransactionCoordinator)
    next_commit_while_marking(with_rules(DoesNotWait))
    with pytest.raises(AssertionError):
        next_commit_while_marking(with_rules(DoesNotCarry))


def batches_in_order(factory) -> None:
    bench = CoordinatorBench(factory)
    first = bench.attempt(0, OUT0, OUT1)
    bench.commit(0, first)
    bench.write_markers((first, OUT0))
    second = bench.attempt(1, OUT1)
    assert error(bench.commit(1, second)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (second, OUT1) not in bench.markers, "batch 1 would appear before batch 0"
    bench.settle()
    assert error(bench.commit(1, second)) is ErrorCode.NONE
    bench.settle()
    assert (bench.outcome(first), bench.outcome(second)) == ({True}, {True})


def test_a_batch_waits_for_the_markers_of_the_last():
    batches_in_order(TransactionCoordinator)
    with pytest.raises(AssertionError):
        batches_in_order(with_rules(DoesNotWait))


# --- 5: the answer leaves before the record is replicated ---


def answer_before_replication(factory) -> None:
    bench = CoordinatorBench(factory)
    member = bench.attempt(0)
    told = bench.commit(0, member, replicate=False)
    assert not bench.markers, "a marker of what is not decided"
    bench.fail_over()
    ledger = bench.coordinator.batches.ledger(LedgerKey("s", "q"))
    committed = ledger is not None and ledger.last == 0
    assert told is None or committed, "Spark logs a batch that is lost"


def test_5_nothing_leaves_before_the_record_is_replicated():
    answer_before_replication(TransactionCoordinator)
    with pytest.raises(AssertionError):
        answer_before_replication(with_rules(MicroBatchCommits, AnswersAtOnce))


@pytest.mark.parametrize("kept", [0, 1])
def test_5_a_commit_that_nobody_heard_of_is_decided_by_the_log_of_the_next_coordinator(kept):
    bench = CoordinatorBench()
    member = bench.attempt(0)
    assert bench.commit(0, member, replicate=False) is None
    bench.fail_over(keep=kept)
    assert not bench.markers, "what was taken over may be lost again"
    # In doubt: the identical request, until there is an answer.
    first = error(bench.commit(0, member))
    if kept:
        assert first is ErrorCode.CONCURRENT_TRANSACTIONS
        assert error(bench.commit(0, member)) is ErrorCode.ALREADY_COMMITTED
    else:
        assert first is ErrorCode.NONE
    bench.settle()
    assert bench.outcome(member) == {True}


# --- 6: Spark's attempt ids come again under a second driver ---


def second_driver(factory) -> None:
    bench = CoordinatorBench(factory)
    of_first_driver = bench.attempt(0)
    of_second_driver = bench.attempt(0)
    assert of_first_driver != of_second_driver, "its rows would be taken for the first driver's"
    assert error(bench.commit(0, of_second_driver)) is ErrorCode.NONE
    bench.settle()
    assert bench.outcome(of_second_driver) == {True}
    assert bench.outcome(of_first_driver) == {False}


def test_6_a_second_driver_s_attempts_are_others():
    second_driver(TransactionCoordinator)
    with pytest.raises(AssertionError):
        second_driver(with_rules(KnowsAttemptsByTheirTask))


# --- 7: state keyed by the sink alone ---


def new_checkpoint(factory) -> None:
    bench = CoordinatorBench(factory)
    for batch in range(3):
        assert error(bench.commit(batch, bench.attempt(batch))) is ErrorCode.NONE
        bench.settle()
    joined = bench.join(0, query="another")
    assert error(joined) is ErrorCode.NONE, "all of the new checkpoint would be dropped"
    assert error(bench.commit(0, joined.producer_id, query="another")) is ErrorCode.NONE
    bench.settle()
    assert error(bench.commit(1, query="q")) is ErrorCode.ALREADY_COMMITTED


def test_7_a_new_checkpoint_has_a_counter_of_its_own():
    new_checkpoint(TransactionCoordinator)
    with pytest.raises(AssertionError):
        new_checkpoint(KeyedBySink)


# --- 8: an old driver's late commit sweeps both attempts of the new one ---


def swept_by_the_old_driver(factory) -> None:
    bench = CoordinatorBench(factory)
    of_old_driver = bench.attempt(0)
    swept = [bench.attempt(0), bench.attempt(0)]
    assert error(bench.commit(0, of_old_driver)) is ErrorCode.NONE
    assert error(bench.enlist(swept[0], OUT0)) is ErrorCode.INVALID_TXN_STATE
    assert error(bench.join(0)) is ErrorCode.ALREADY_COMMITTED
    assert error(bench.commit(0, swept[1], drained=1)) is ErrorCode.ALREADY_COMMITTED
    assert error(bench.commit(0, *swept)) is ErrorCode.ALREADY_COMMITTED
    assert error(bench.commit(0, drained=2)) is ErrorCode.ALREADY_COMMITTED
    bench.settle()
    assert bench.outcome(of_old_driver) == {True}
    assert [bench.outcome(each) for each in swept] == [{False}, {False}]


def test_8_both_attempts_swept_and_the_driver_still_succeeds():
    swept_by_the_old_driver(TransactionCoordinator)
    with pytest.raises(AssertionError):
        swept_by_the_old_driver(with_rules(LooksAtDrainedFirst))


# --- 9: members checked before the batch id ---


def lost_answer(factory) -> None:
    bench = CoordinatorBench(factory)
    member = bench.attempt(0)
    assert error(bench.commit(0, member)) is ErrorCode.NONE
    bench.settle()
    assert error(bench.commit(0, member)) is ErrorCode.ALREADY_COMMITTED


def test_9_a_commit_whose_answer_was_lost_succeeds_again():
    lost_answer(TransactionCoordinator)
    with pytest.raises(AssertionError):
        lost_answer(with_rules(LooksAtMembersFirst))


# --- the others ---


def part_of_a_batch(factory) -> None:
    bench = CoordinatorBench(factory)
    kept, lost = bench.attempt(0), bench.attempt(0)
    bench.ask(
        lambda request: AbortMembers(
            request=request, sink="s", query="q", members=frozenset({(lost, 0)})
        )
    )
    assert error(bench.commit(0, kept, lost)) is ErrorCode.MEMBER_LOST
    bench.settle()
    assert bench.outcome(kept) == set(), "nothing changes: it is open still"
    assert error(bench.join(0)) is ErrorCode.NONE, "and the batch can be replayed"


def test_a_part_of_a_batch_is_never_committed():
    part_of_a_batch(TransactionCoordinator)
    with pytest.raises(AssertionError):
        part_of_a_batch(with_rules(CommitsWhatIsOpen))


def replayed_batch(factory) -> None:
    bench = CoordinatorBench(factory)
    zombie, member = bench.attempt(0), bench.attempt(0)
    assert error(bench.commit(0, member)) is ErrorCode.NONE
    bench.settle()
    assert error(bench.commit(0)) is ErrorCode.ALREADY_COMMITTED
    assert error(bench.commit(0, zombie)) is ErrorCode.ALREADY_COMMITTED
    bench.settle()
    assert (bench.outcome(member), bench.outcome(zombie)) == ({True}, {False})


def test_a_batch_is_committed_once():
    replayed_batch(TransactionCoordinator)
    with pytest.raises(AssertionError):
        replayed_batch(with_rules(ForgetsTheBatchId))


def failover_after_enlisting(factory) -> None:
    bench = CoordinatorBench(factory)
    member = bench.attempt(0)
    bench.fail_over()
    bench.replicate()
    assert error(bench.commit(0, member)) is ErrorCode.NONE
    bench.settle()
    assert {tp for _, tp in bench.written} == {OUT0, OUT1}


def test_enlisted_partitions_outlive_a_failover():
    failover_after_enlisting(TransactionCoordinator)
    with pytest.raises(AssertionError):
        failover_after_enlisting(with_rules(KeepsPartitionsInMemory))


def slow_sibling(factory) -> None:
    bench = CoordinatorBench(factory)
    accepted = bench.attempt(0, OUT0)
    sibling = bench.join(0).producer_id
    for step in range(6):
        bench.pass_time(TIMEOUT_MS // 2)
        if step % 2:
            assert error(bench.enlist(sibling, TopicPartition("out", step))) is ErrorCode.NONE
        else:
            bench.ask(
                lambda request: MicroBatchHeartbeat(
                    request=request, sink="s", query="q", batch=0, now_ms=bench.now_ms
                )
            )
    assert error(bench.commit(0, accepted, sibling)) is ErrorCode.NONE


def test_an_accepted_attempt_lives_as_long_as_a_slow_sibling_works():
    slow_sibling(TransactionCoordinator)
    with pytest.raises(AssertionError):
        slow_sibling(with_rules(TimesEachByItself))


def dead_driver(factory) -> None:
    bench = CoordinatorBench(factory)
    member, empty = bench.attempt(0), bench.join(0).producer_id
    bench.pass_time(TIMEOUT_MS - 1)
    bench.settle()
    assert not bench.written
    bench.pass_time(1)
    assert not bench.markers, "the abort is not replicated"
    bench.settle()
    assert bench.outcome(member) == {False}
    assert not list(bench.coordinator.batches.members())
    assert {key for key, record in bench.log if record is None} >= {
        MemberKey(member),
        MemberKey(empty),
    }
    assert error(bench.commit(0, member)) is ErrorCode.MEMBER_LOST


def test_what_a_dead_driver_left_is_aborted_in_time():
    dead_driver(TransactionCoordinator)
    with pytest.raises(AssertionError):
        dead_driver(with_rules(HasNoTimeout))


def test_tasks_that_were_told_of_a_commit_that_is_none_end_the_query():
    bench = CoordinatorBench()
    member = bench.attempt(0)
    assert error(bench.commit(0, member, drained=1)) is ErrorCode.NOT_COMMITTED
    bench.settle()
    assert bench.outcome(member) == set()


def test_members_of_another_batch_query_or_sink_are_lost_members():
    bench = CoordinatorBench()
    others = [
        bench.attempt(1),
        bench.attempt(0, query="another"),
        bench.attempt(0, sink="another"),
    ]
    for other in others:
        assert error(bench.commit(0, bench.attempt(0), other)) is ErrorCode.MEMBER_LOST
    bench.settle()
    assert not bench.written


def test_a_commit_leaves_later_batches_and_other_queries_alone():
    bench = CoordinatorBench()
    later, foreign, old, member = (
        bench.attempt(2),
        bench.attempt(0, query="another"),
        bench.attempt(0),
        bench.attempt(1),
    )
    assert error(bench.commit(1, member)) is ErrorCode.NONE
    bench.settle()
    ends = [bench.outcome(each) for each in (later, foreign, old, member)]
    assert ends == [set(), set(), {False}, {True}]


def test_an_empty_batch_is_committed_and_remembered():
    bench = CoordinatorBench()
    assert error(bench.commit(0)) is ErrorCode.NONE
    bench.fail_over()
    bench.replicate()
    assert error(bench.join(0)) is ErrorCode.ALREADY_COMMITTED
    assert error(bench.commit(1)) is ErrorCode.NONE
