"""Whether a producer may write to a partition: the coordinator's word, and how long it counts."""

from storage_engine.core.transactions.verification_guard import (
    VerificationGuards,
    search_name,
    searched_partition,
)


def opened(guards: VerificationGuards, producer_id: int, epoch: int) -> bool:
    return guards.note_answer(guards.ask(producer_id, epoch), enlisted=True)


def test_the_word_of_the_coordinator_opens_it_until_the_next_marker():
    guards = VerificationGuards()
    assert not guards.is_open(1, 0)
    assert opened(guards, 1, 0)
    assert guards.is_open(1, 0)
    guards.note_marker(2)
    assert guards.is_open(1, 0)
    guards.note_marker(1)
    assert not guards.is_open(1, 0)


def test_a_refusal_leaves_it_closed_and_may_be_asked_about_again():
    guards = VerificationGuards()
    assert not guards.note_answer(guards.ask(1, 0), enlisted=False)
    assert not guards.is_open(1, 0)
    assert opened(guards, 1, 0)


def test_batches_that_come_meanwhile_share_the_question():
    guards = VerificationGuards()
    question = guards.ask(1, 0)
    assert guards.ask(1, 0) == question
    assert guards.note_answer(question, enlisted=True)
    assert not guards.note_answer(question, enlisted=False), "a repeat says nothing"
    assert guards.is_open(1, 0)


def test_a_word_from_before_a_marker_or_of_another_epoch_does_not_count():
    guards = VerificationGuards()
    before = guards.ask(1, 0)
    guards.note_marker(1)
    after = guards.ask(1, 0)
    assert after != before
    assert not guards.note_answer(before, enlisted=True)
    assert not guards.is_open(1, 0)
    newer = guards.ask(1, 1)
    assert not guards.note_answer(after, enlisted=True)
    assert guards.note_answer(newer, enlisted=True)
    assert (guards.is_open(1, 0), guards.is_open(1, 1)) == (False, True)


def test_a_word_holds_until_the_next_marker_and_not_for_the_next_transaction():
    guards = VerificationGuards()
    assert guards.verification(7, 0) is None
    guards.note_answer(guards.ask(7, 0), enlisted=True)
    word = guards.verification(7, 0)
    assert word is not None and guards.is_valid(word)
    assert guards.verification(7, 1) is None
    guards.note_marker(7)
    assert not guards.is_valid(word)
    guards.note_answer(guards.ask(7, 0), enlisted=True)
    assert guards.is_open(7, 0) and not guards.is_valid(word)


def test_names_of_questions_are_told_from_all_others():
    assert [searched_partition(search_name(number)) for number in (0, 49)] == [0, 49]
    for name in ("", "7", "tx", "__headrace_search/", "__headrace_search/07", search_name(-1)):
        assert searched_partition(name) is None
