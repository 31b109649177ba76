"""Deliberate bugs of what a failed sync, or a loss of power, leaves behind, each a patch of the
real code: what the simulation must find."""

from contextlib import ExitStack

from simulation.run import run_seed
from simulation.tests.mutations import Apply, mutated, set_attribute
from storage_engine.broker.transactions.hanging_transactions import HangingTransactions
from storage_engine.log.recovery import log_loader
from storage_engine.log.recovery.recovery import SegmentChecks

MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    MUTATIONS[apply.__name__] = apply
    return apply


def failure_of(name: str, seed: int, seconds: int) -> str | None:
    """The promise that a seed finds broken under a mutation; for a process of its own."""
    transactions = name == "transactions_that_nobody_knows_stay_open"
    with mutated(MUTATIONS[name]):
        return run_seed(seed, seconds=seconds, transactions=transactions, disks=True).rule


@mutation
def what_is_in_the_page_cache_counts_as_written(stack: ExitStack) -> None:
    """A start on the same boot trusts that the next sync brings to the medium what it reads."""
    begin = SegmentChecks.__init__

    def trust(self: SegmentChecks, *args: object, **named: object) -> None:
        begin(self, *args, **named | {"rewrites": False})  # type: ignore[arg-type]

    set_attribute(stack, SegmentChecks, "__init__", trust)
    set_attribute(stack, log_loader, "write_anew", lambda disk, path: None)


@mutation
def transactions_that_nobody_knows_stay_open(stack: ExitStack) -> None:
    set_attribute(stack, HangingTransactions, "start", lambda self: None)
