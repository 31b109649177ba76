"""Which dead letters are selected, and what is counted of them."""

import pyarrow as pa
import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.letter_replay import selection as letter_selection
from storage_engine.letter_replay.selection import (
    OTHER_REASONS,
    LetterSelection,
    Survey,
    first_of,
)
from storage_engine.protocol.dead_letters import Letters

DEAD = TopicPartition("dead", 0)


def letters(*rows):
    """Letters of (topic, timestamp, reason) of partition 0, with their offsets."""
    topics, times_ms, reasons = zip(*rows, strict=True)
    known = [None if topic is None else 0 for topic in topics]
    return Letters(
        topics=pa.array(topics, pa.string()),
        partitions=pa.array(known, pa.int64()),
        offsets=pa.array(known, pa.int64()),
        timestamps_ms=pa.array(times_ms, pa.int64()),
        reasons=pa.array(reasons, pa.binary()),
    )


LETTERS = letters(
    ("orders", 10, b"not a number: x"),
    ("orders", 20, b"too late"),
    ("clicks", 30, b"not a number: y"),
    (None, 40, b"not a number: z"),
    ("clicks", None, None),
)


@pytest.mark.parametrize(
    ("conditions", "selected"),
    [
        ({}, [0, 1, 2, 4]),
        ({"topics": frozenset({"orders"})}, [0, 1]),
        ({"topics": frozenset({"orders", "other"})}, [0, 1]),
        ({"since_ms": 20}, [1, 2]),
        ({"until_ms": 20}, [0]),
        ({"since_ms": 10, "until_ms": 30}, [0, 1]),
        ({"reason": "not a number"}, [0, 2]),
        ({"reason": "^late"}, []),
        ({"topics": frozenset({"clicks"}), "reason": "number"}, [2]),
    ],
)
def test_a_letter_is_selected_by_all_conditions_and_never_without_an_origin(conditions, selected):
    mask = LetterSelection(**conditions).mask(LETTERS)
    assert [place for place, is_selected in enumerate(mask) if is_selected] == selected


def test_a_reason_that_is_no_regular_expression_is_one_line():
    with pytest.raises(ConfigError, match=r"'\(' is not a regular expression") as caught:
        LetterSelection(reason="(").mask(LETTERS)
    assert "\n" not in str(caught.value)


def test_a_survey_counts_by_topic_and_reason_and_remembers_the_last_selected():
    survey = Survey()
    mask = LetterSelection(reason="number").mask(LETTERS)
    survey.count(DEAD, pa.array(range(5, 10)), LETTERS, mask)
    survey.count(DEAD, pa.array(range(10, 15)), LETTERS, mask & False)
    assert (survey.waiting, survey.selected, survey.without_origin) == (10, 2, 2)
    assert survey.last_selected == {DEAD: 7}
    assert survey.kinds == {("orders", "not a number: x"): 1, ("clicks", "not a number: y"): 1}


def test_reasons_beyond_the_most_are_counted_together(monkeypatch):
    monkeypatch.setattr(letter_selection, "MAX_KINDS", 2)
    survey = Survey()
    found = letters(*[("t", 1, b"%d" % number) for number in (1, 2, 3, 4, 1)])
    survey.count(DEAD, pa.array(range(5)), found, LetterSelection().mask(found))
    assert survey.kinds[("t", OTHER_REASONS)] == 2
    assert sum(survey.kinds.values()) == 5


def test_the_first_letters_are_those_that_are_selected():
    mask = LetterSelection(since_ms=20).mask(LETTERS)
    assert first_of(mask, 1).tolist() == [False, True, False, False, False]
    assert not first_of(mask, 0).any()
    assert first_of(mask, 9).tolist() == mask.tolist()
