"""Runs seeds: adds up what happened in them, or looks for one that finds a mutation."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field

import pytest

from simulation.faults.faults import FaultKind
from simulation.run import run_seed
from simulation.simulate import DEFAULT_SECONDS


@dataclass(frozen=True, slots=True)
class SeedSum:
    """Of seeds that all keep their promises."""

    events: int = 0
    simulated_ms: int = 0
    acknowledged: int = 0
    faults: Counter[FaultKind] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "SeedSum") -> "SeedSum":
        return SeedSum(
            self.events + other.events,
            self.simulated_ms + other.simulated_ms,
            self.acknowledged + other.acknowledged,
            self.faults + other.faults,
            self.counts + other.counts,
        )


def sum_of(
    pool: ProcessPoolExecutor,
    seeds: Iterable[int],
    *,
    seconds: int = DEFAULT_SECONDS,
    transactions: bool = False,
    typed: bool = False,
    proof: bool = False,
    disks: bool = False,
    groups: bool = False,
) -> SeedSum:
    """Of seeds that run in the process of the file: those of the command take as long to start as
    six seeds."""
    which = {
        "transactions": transactions,
        "typed": typed,
        "proof": proof,
        "disks": disks,
        "groups": groups,
    }
    total = SeedSum()
    for run in [pool.submit(run_seed, seed, seconds=seconds, **which) for seed in seeds]:
        seed = run.result()
        assert seed.failure is None, f"--seed {seed.seed}: {seed.rule}: {seed.failure}"
        total += SeedSum(
            seed.events,
            seed.simulated_ms,
            seed.acknowledged,
            seed.done,
            Counter({what.replace(" ", "_"): count for what, count in seed.counts.items()}),
        )
    return total


def check_caught(
    run: Callable[[int], "Future[str | None]"], first: int, seeds: Iterable[int]
) -> None:
    """Check that a seed breaks a promise: `first`, or else one of `seeds`."""
    for seed in (first, *seeds):
        rule = run(seed).result()
        if rule is not None:
            # An exception that escapes would be a fault of the mutation itself.
            assert not rule.startswith("nothing escapes"), rule
            if seed != first:
                # A search takes as long as a hundred other tests, and nobody would notice.
                warnings.warn(f"not seed {first} finds it now but {seed}", stacklevel=2)
            return
    pytest.fail(f"no seed in {seeds} finds it")
