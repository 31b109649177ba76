"""Members of a consumer group join, go on, leave and come back; their epochs say what they have
seen. Source: KIP-848."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import CheckDeadlines
from storage_engine.core.groups.settings import ConsumerSettings
from storage_engine.tests.core.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Client,
    ConsumerBench,
    numbers,
    shapes,
    topic_id,
)

T = topic_id("t")
SESSION_MS = 45_000


def owned(*partitions: int):
    return {T: frozenset(partitions)} if partitions else {}


def test_the_first_member_gets_all_partitions_with_its_first_answer():
    bench = ConsumerBench()
    answer = bench.enter_group("a")
    assert (answer.member_id, answer.member_epoch, answer.interval_ms) == ("a", 1, INTERVAL_MS)
    assert numbers(answer.assignment) == [0, 1, 2, 3]
    assert bench.state() == "Stable"


def test_no_answer_leaves_before_its_records_are_replicated():
    bench = ConsumerBench()
    joining = {"rebalance_timeout_ms": 1, "topics": frozenset({"t"}), "owned": {}}
    assert bench.beat("a", 0, replicate=False, **joining) is None
    bench.replicate()
    assert bench.answers[bench.requests].member_epoch == 1


def test_a_heartbeat_that_changes_nothing_is_answered_while_others_are_not_replicated():
    bench = ConsumerBench()
    bench.members("a")
    assert bench.enter_group("b", group_id="other", replicate=False) is None
    assert bench.beat("a", 1, replicate=False) is not None


def test_a_partition_is_given_only_when_its_former_owner_has_let_it_go():
    bench = ConsumerBench()
    bench.members("a")
    second = bench.enter_group("b")
    assert (second.member_epoch, numbers(second.assignment)) == (2, [])
    told = bench.beat("a", 1)
    kept = numbers(told.assignment)
    assert (told.member_epoch, len(kept)) == (1, 2)
    assert bench.state() == "Reconciling"
    assert bench.beat("b", 2).assignment is None
    done = bench.beat("a", 1, owned=owned(*kept))
    assert (done.member_epoch, done.assignment) == (2, None)
    assert numbers(bench.beat("b", 2).assignment) == sorted({0, 1, 2, 3} - {*kept})
    assert bench.state() == "Stable"


def test_a_member_that_still_holds_what_it_has_to_give_up_keeps_its_epoch():
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b")
    bench.beat("a", 1)
    for still in (owned(0, 1, 2, 3), None):
        assert bench.beat("a", 1, owned=still).member_epoch == 1
        assert bench.beat("b", 2).assignment is None


def test_a_member_that_leaves_gives_its_partitions_to_the_others_at_once():
    bench = ConsumerBench()
    first, second = bench.members("a", "b")
    assert bench.beat("b", -1).member_epoch == -1
    assert numbers(first.turn().assignment) == [0, 1, 2, 3]
    assert bench.code(bench.beat("b", second.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group():
    bench = ConsumerBench()
    (only,) = bench.members("a")
    only.leave()
    assert bench.state() == "Empty"
    assert bench.enter_group("b").member_epoch == 3


def test_a_member_that_is_silent_for_a_session_is_removed():
    bench = ConsumerBench()
    first, _ = bench.members("a", "b")
    for _ in range(SESSION_MS // INTERVAL_MS):
        bench.advance(INTERVAL_MS)
        answer = first.turn()
    assert numbers(answer.assignment) == [0, 1, 2, 3]
    assert list(bench.consumer_group().members) == ["a"]


def test_a_member_that_does_not_give_up_partitions_in_time_is_removed():
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b")
    for _ in range(REBALANCE_MS // INTERVAL_MS):
        assert bench.code(bench.beat("a", 1)) is ErrorCode.NONE
        bench.beat("b", 2)
        bench.advance(INTERVAL_MS)
    assert list(bench.consumer_group().members) == ["b"]
    assert bench.code(bench.beat("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_does_not_end_while_its_answer_waits_for_the_replicas():
    bench = ConsumerBench()
    bench.enter_group("a", replicate=False)
    bench.now_ms = SESSION_MS
    bench.step(CheckDeadlines(at=bench.at))
    bench.replicate()
    assert "a" in bench.consumer_group().members


# --- epochs ---


def test_an_epoch_that_never_was_is_fenced():
    bench = ConsumerBench()
    bench.members("a")
    for epoch in (2, 7):
        assert bench.code(bench.beat("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_lost_an_answer_gets_it_again():
    bench = ConsumerBench()
    (first,) = bench.members("a")
    bench.tell_topics(shapes(t=5))
    lost = bench.beat("a", 1)
    assert (lost.member_epoch, numbers(lost.assignment)) == (2, [0, 1, 2, 3, 4])
    again = bench.beat("a", 1, owned=first.owned)
    assert (again.member_epoch, again.assignment) == (2, lost.assignment)


def test_two_lost_answers_in_a_row_do_not_fence_a_member():
    bench = ConsumerBench()
    (first,) = bench.members("a")
    for partitions in (5, 6):
        bench.tell_topics(shapes(t=partitions))
        bench.beat("a", 1, owned=first.owned)
    assert bench.beat("a", 1, owned=first.owned).member_epoch == 2
    assert bench.beat("a", 2, owned=owned(*range(5))).member_epoch == 3


def test_a_former_epoch_with_partitions_of_others_is_fenced():
    bench = ConsumerBench()
    bench.members("a")
    bench.tell_topics(shapes(t=5))
    bench.beat("a", 1)
    for claimed in (owned(9), {topic_id("u"): frozenset({0})}, None):
        code = bench.code(bench.beat("a", 1, owned=claimed))
        assert code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_join_that_is_sent_again_is_answered_as_the_first():
    bench = ConsumerBench()
    answers = [bench.enter_group("a") for _ in range(2)]
    assert answers[0].assignment == answers[1].assignment
    assert answers[1].member_epoch == 1


def test_a_full_heartbeat_is_answered_with_all_partitions():
    bench = ConsumerBench()
    (first,) = bench.members("a")
    full = {"rebalance_timeout_ms": 1, "topics": frozenset({"t"}), "owned": first.owned}
    assert numbers(bench.beat("a", 1, **full).assignment) == [0, 1, 2, 3]
    assert bench.beat("a", 1, owned=first.owned).assignment is None


def test_a_member_that_subscribes_to_other_topics_gets_others():
    bench = ConsumerBench({"t": 2, "u": 2})
    bench.members("a")
    told = bench.beat("a", 1, topics=frozenset({"u"}))
    assert (told.member_epoch, told.assignment) == (1, {})
    done = bench.beat("a", 1, owned={})
    assert (done.member_epoch, numbers(done.assignment, "u")) == (2, [0, 1])
    assert bench.consumer_group().subscribed() == {"u"}


# --- static members ---


def test_a_static_member_that_leaves_for_a_moment_keeps_its_partitions():
    bench = ConsumerBench()
    _first, second = bench.members("a", "b")
    bench.beat("b", -1)
    static = Client(bench, "s1", instance_id="s")
    bench.settle([_first, static])
    had = static.owned
    assert bench.beat("s1", -2, instance_id="s").member_epoch == -2
    epoch = bench.consumer_group().epoch
    back = bench.enter_group("s2", instance_id="s")
    assert back.assignment == had
    assert bench.consumer_group().epoch == epoch, "nobody else is moved"
    assert second.name not in bench.consumer_group().members


def test_a_member_that_comes_back_has_nothing_of_the_subscription_that_it_had():
    bench = ConsumerBench()
    bench.enter_group("s1", instance_id="s", topics=None, pattern="t.*", assignor="range")
    bench.beat("s1", -2, instance_id="s")
    bench.enter_group("s2", instance_id="s")
    member = bench.consumer_group().members["s2"]
    assert (member.topics, member.pattern, member.assignor) == (frozenset({"t"}), None, None)


def test_an_instance_id_that_is_in_use_is_not_given_to_another():
    bench = ConsumerBench()
    bench.members("s1", instance_id="s")
    code = bench.code(bench.enter_group("s2", instance_id="s"))
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_whose_first_answer_was_lost_may_ask_again():
    bench = ConsumerBench()
    first = bench.enter_group("s1", instance_id="s")
    assert bench.enter_group("s1", instance_id="s").assignment == first.assignment


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_the_former_holder_of_an_instance_id_is_fenced(epoch):
    bench = ConsumerBench()
    bench.members("s1", instance_id="s")
    bench.beat("s1", -2, instance_id="s")
    bench.enter_group("s2", instance_id="s")
    assert bench.code(bench.beat("s1", epoch, instance_id="s")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_in_time_is_removed():
    bench = ConsumerBench()
    bench.members("s1", instance_id="s")
    bench.beat("s1", -2, instance_id="s")
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"


def test_a_static_member_that_leaves_for_good_is_removed_at_once():
    bench = ConsumerBench()
    bench.members("s1", instance_id="s")
    assert bench.beat("s1", -1, instance_id="s").error is ErrorCode.NONE
    assert bench.enter_group("s2", instance_id="s").error is ErrorCode.NONE


# --- what is refused ---


def test_a_member_of_a_group_that_is_not_there_is_told_so():
    bench = ConsumerBench()
    for epoch in (1, -1):
        assert bench.code(bench.beat("a", epoch)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_someone_elses_member_id_is_unknown_in_another_group():
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b", group_id="other")
    assert bench.code(bench.beat("a", 1, group_id="other")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_but_those_who_are_in():
    bench = ConsumerBench(consumer=ConsumerSettings(max_size=1))
    bench.members("a")
    assert bench.code(bench.enter_group("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "b" not in bench.consumer_group().members
    assert bench.beat("a", 1).error is ErrorCode.NONE


def test_a_static_member_comes_back_to_a_full_group():
    bench = ConsumerBench(consumer=ConsumerSettings(max_size=1))
    bench.members("s1", instance_id="s")
    bench.beat("s1", -2, instance_id="s")
    assert bench.enter_group("s2", instance_id="s").error is ErrorCode.NONE
    bench.beat("s2", -2, instance_id="s")
    assert bench.error(bench.join(instance_id="other")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.error(bench.join(instance_id="s")) is ErrorCode.NONE


def test_nobody_joins_before_the_topics_are_known():
    bench = ConsumerBench()
    bench.tells_topics = False
    bench.fail_over()
    assert bench.code(bench.enter_group("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.tell_topics(bench.shapes)
    assert bench.enter_group("a").error is ErrorCode.NONE


def test_a_member_goes_on_while_a_new_coordinator_does_not_know_the_topics():
    bench = ConsumerBench()
    bench.members("a")
    bench.tells_topics = False
    bench.fail_over()
    answer = bench.beat("a", 1)
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, None)


# --- while nothing can be appended ---


def test_a_session_goes_on_while_replicas_are_missing():
    bench = ConsumerBench()
    bench.members("a")
    for _ in range(2 * SESSION_MS // INTERVAL_MS):
        bench.now_ms += INTERVAL_MS
        answer = bench.beat("a", 1, writes=False)
        assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 1)
    bench.advance(INTERVAL_MS)
    assert bench.state() == "Stable"


@pytest.mark.parametrize(
    "how", [{"owned": {}, "epoch": 1}, {"topics": frozenset({"u"})}, {"epoch": 0}, {"epoch": 7}]
)
def test_what_has_to_be_written_is_asked_for_again(how):
    bench = ConsumerBench()
    bench.members("a")
    bench.enter_group("b")
    bench.beat("a", 1)
    before = len(bench.log)
    joining = {"rebalance_timeout_ms": 1, "topics": frozenset({"t"}), "owned": {}}
    given = {"epoch": 1, **(joining if how.get("epoch") == 0 else {}), **how}
    answer = bench.beat("a", given.pop("epoch"), writes=False, **given)
    assert bench.code(answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(bench.log) == before


def test_a_member_that_is_not_there_is_told_so_while_replicas_are_missing():
    bench = ConsumerBench()
    assert bench.code(bench.beat("a", 1, writes=False)) is ErrorCode.GROUP_ID_NOT_FOUND
    bench.members("a")
    assert bench.code(bench.beat("b", 1, writes=False)) is ErrorCode.UNKNOWN_MEMBER_ID
