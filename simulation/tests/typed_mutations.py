"""Deliberate bugs of typed topics, each a patch of the real code: what the simulation must find."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from simulation.run import run_seed
from simulation.tests.mutations import Apply, mutated, set_attribute
from storage_engine.log import append_rules, leader_appends
from storage_engine.log.leader_appends import LeaderAppends
from storage_engine.protocol.typed import kept_rows, projection
from storage_engine.protocol.typed.directory import statistics_of

MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    MUTATIONS[apply.__name__] = apply
    return apply


def failure_of(name: str, seed: int, seconds: int) -> str | None:
    """The promise that a seed finds broken under a mutation; for a process of its own."""
    with mutated(MUTATIONS[name]):
        return run_seed(seed, seconds=seconds, typed=True).rule


@mutation
def batches_of_other_schemas_are_taken(stack: ExitStack) -> None:
    """A leader looks neither at the topic id nor at the version of the schema."""
    set_attribute(stack, append_rules, "check_typed_batch", lambda *_args, **_named: None)


@mutation
def converted_batches_are_not_checked_again(stack: ExitStack) -> None:
    """What a thread has made columns of is appended as it is, whether its producer has sent it
    again meanwhile or not."""
    append = LeaderAppends.append

    def append_converted(self: Any, records: Any, *, is_checked: bool = False, **how: Any) -> Any:
        if not is_checked:
            return append(self, records, **how)
        with patch.object(leader_appends, "check_producers", lambda _states, _batches: None):
            return append(self, records, is_checked=True, **how)

    set_attribute(stack, LeaderAppends, "append", append_converted)


@mutation
def compaction_forgets_which_rows_it_kept(stack: ExitStack) -> None:
    """The column of offset deltas counts the rows that are left."""
    with_kept = kept_rows._with_kept

    def forget(opened: Any, rows: Any, horizon: Any) -> Any:
        opened = _Renumbered(opened)
        return with_kept(opened, rows, horizon)

    set_attribute(stack, kept_rows, "_with_kept", forget)


class _Renumbered:
    """A batch whose rows seem to follow one another from the first that is taken."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    @property
    def deltas(self) -> Any:
        return _FromZero()


class _FromZero:
    def __getitem__(self, rows: Any) -> Any:
        return np.arange(len(rows), dtype=np.int64)


@mutation
def filters_leave_out_the_largest_value(stack: ExitStack) -> None:
    """A batch is skipped where a value equals its maximum."""

    def below(*args: Any) -> Any:
        found = statistics_of(*args)
        if found is None:
            return None
        if isinstance(found.maximum, str) and found.maximum:
            return replace(found, maximum=found.maximum[:-1])
        return found

    set_attribute(stack, projection, "statistics_of", below)
