"""Runs seeds, and adds up what happened in them."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

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
) -> SeedSum:
    """Of seeds that run in the process of the file: those of the command take as long to start as
    six seeds."""
    which = {"transactions": transactions, "typed": typed, "proof": proof, "disks": disks}
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
