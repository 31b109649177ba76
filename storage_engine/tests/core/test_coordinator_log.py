"""The log of a coordinator: what waits for a record, and what leaves at once."""

from storage_engine.core.coordinator_log import (
    Answer,
    AppendRecord,
    CountAppended,
    StateLog,
    pieces,
)
from storage_engine.core.errors import ErrorCode


def new_log() -> StateLog[str, Answer]:
    return StateLog(lambda request, error: Answer(request=request, error=error))


def test_an_answer_leaves_when_all_that_it_follows_from_is_replicated():
    log = new_log()
    log.note_replicated(0)
    first, counted, last = log.append("a"), log.count_appended(), log.append("b", producer=(7, 0))
    for request, number in ((1, last), (2, first), (3, first)):
        log.answer(Answer(request=request), after=number)
    assert log.take_effects() == [
        AppendRecord(number=first, entry="a"),
        CountAppended(number=counted),
        AppendRecord(number=last, entry="b", producer=(7, 0)),
    ]
    log.note_replicated(counted)
    assert log.take_effects() == [Answer(request=2), Answer(request=3)]
    assert log.in_flight(last) and not log.in_flight(counted)
    log.note_replicated(last)
    assert log.take_effects() == [Answer(request=1)]


def test_what_was_restored_counts_as_replicated_only_when_it_is_told():
    log = new_log()
    log.answer(Answer(request=1), after=0)
    assert log.take_effects() == []
    log.note_replicated(0)
    log.answer(Answer(request=2), after=0)
    assert log.take_effects() == [Answer(request=1), Answer(request=2)]


def test_a_refusal_waits_for_nothing():
    log = new_log()
    log.append("a")
    log.refuse(4, ErrorCode.NOT_COORDINATOR)
    assert log.take_effects()[1:] == [Answer(request=4, error=ErrorCode.NOT_COORDINATOR)]


def test_what_is_appended_while_answers_leave_waits_for_itself():
    log = new_log()
    log.note_replicated(0)
    first = log.append("a")
    log.after(first, lambda: log.answer(Answer(request=1), after=log.append("b")))
    log.take_effects()
    log.note_replicated(first)
    assert log.take_effects() == [AppendRecord(number=2, entry="b")]
    log.note_replicated(2)
    assert log.take_effects() == [Answer(request=1)]


def test_a_table_may_change_between_its_pieces():
    table = dict.fromkeys(range(5))
    seen = []
    for piece in pieces(table, 2):
        seen.append(piece)
        table.clear()
    assert seen == [[0, 1], [2, 3], [4]]
    assert list(pieces([1, 2], 2)) == [[1, 2]], "none that is empty follows"
