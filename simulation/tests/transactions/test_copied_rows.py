"""A sink has each record of its source once."""

from typing import Any

import pytest

from simulation.checks.ledger import InvariantViolation
from simulation.transactions.copied_rows import SOURCES, CopiedRows

A, B = SOURCES
BATCH: Any = "micro-batch 1"


class Task:
    """Stands for a transaction, of which only the name is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name


def task(name: str) -> Any:
    return Task(name)


def copied(*ranges: dict, is_void: bool = False) -> CopiedRows:
    """Rows of tasks whose micro-batches were all committed."""
    rows = CopiedRows(lambda: is_void)
    for number, each in enumerate(ranges):
        member = task(str(number))
        rows.writes(member, each)
        rows.on_won(BATCH, [member])
    return rows


def test_rows_count_once_their_micro_batch_is_committed():
    rows = CopiedRows(lambda: False)
    member = task("a")
    rows.writes(member, {A: range(3)})
    assert rows.count == 0
    rows.on_won(BATCH, [member])
    rows.on_won(BATCH, [member])
    assert rows.count == 3


def test_a_row_of_two_tasks_is_there_twice():
    copied({A: range(3)}, {A: range(3, 5), B: range(3)})
    with pytest.raises(InvariantViolation, match="each record of its source once"):
        copied({A: range(3)}, {A: range(2, 5)})
    copied({A: range(3)}, {A: range(2, 5)}, is_void=True)


def test_a_row_below_a_checkpoint_that_nobody_wrote_is_left_out():
    rows = copied({A: range(3)}, {A: range(4, 6)})
    rows.claims("query", {A: 3})
    rows.check_end(is_complete=True)
    rows.claims("query", {A: 4})
    with pytest.raises(InvariantViolation, match=r"source-0 at 3: query has committed up to 4"):
        rows.check_end(is_complete=True)
    rows.check_end(is_complete=False)
