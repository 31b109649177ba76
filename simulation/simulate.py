"""Test the brokers' real code in simulated time: run clusters with injected faults, and check after
every event that no record is lost, repeated or reordered and that no other guarantee is broken.

A seed determines one run: its cluster, its clients and its faults. When a seed fails, the command
runs it again with fewer and fewer faults until it needs every one that is left, and prints these
with the command that replays the run. The exit status is 1 when a seed failed. Each negative seed
is a script for one particular combination of faults, without random ones.

The clients are producers, consumers, transactional producers, micro-batches of the exactly-once
sink, a consumer group that commits offsets, and read_committed readers; the coordinators' logs are
compacted meanwhile. --no-transactions leaves out all transactional clients, and a seed then takes a
third of the time. Further clients write rows to typed topics, as columns and as JSON, and compare
what they read; --no-typed leaves these clients out. In every third seed the members of one more
group join, leave, hang and change their protocol, while topics that they read grow, are deleted and
made anew; --no-groups leaves these out.

examples:
  headrace simulate --seeds 1000 --jobs 2
  headrace simulate --seed 4711 --faults 3,17 --trace
"""

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from unittest.mock import patch

from simulation.faults.shrink import shrink
from simulation.run import SeedOutcome, run_seed
from storage_engine.broker import unexpected
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.document import Document
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_json, print_table, report_line, write_line

DEFAULT_SEEDS = 100
DEFAULT_SECONDS = 8
LOGGED_PROGRESS_S = 60.0
"""How often a line with the progress is printed when stderr is not a terminal."""
WITH = {
    "transactions": "run transactional clients too, or leave them out (default: run them)",
    "typed": "write and read typed topics too, or leave them out (default: write and read them)",
    "proof": "let brokers and their watchers close the ZooKeeper session of a dead broker by a "
    "proof of its death, and let whole machines fail, or let every session expire (default: close "
    "it)",
    "groups": "in every third seed run members of a group by both protocols too, or leave them out "
    "(default: run them)",
    "disks": "give brokers two log dirs that fail and that replicas move between, delete records "
    "and set clocks, or leave these faults out (default: inject them)",
}
"""The fields of `With`, each with the help text of its option."""
WITH_GROUPS = 3
"""Every third seed has members of a group, which take a quarter of its time: so all seeds together
take about as long as without."""
AHEAD = 4
"""Seeds queued for each process, enough to keep it busy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace simulate`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, metavar="N", help="run only this seed")
    which.add_argument(
        "--seeds",
        type=positive_integer,
        default=DEFAULT_SEEDS,
        metavar="N",
        help=f"number of seeds to run (default {DEFAULT_SEEDS})",
    )
    parser.add_argument(
        "--start", type=int, default=0, metavar="S", help="first seed of --seeds (default 0)"
    )
    parser.add_argument(
        "--seconds",
        type=positive_integer,
        default=DEFAULT_SECONDS,
        metavar="T",
        help=f"simulated seconds of faults in each seed (default {DEFAULT_SECONDS})",
    )
    parser.add_argument(
        "--jobs",
        type=positive_integer,
        default=1,
        metavar="J",
        help="number of processes that run seeds (default 1)",
    )
    parser.add_argument(
        "--faults",
        type=_numbers,
        metavar="N,N",
        help="with --seed: inject only the faults with these numbers (default: all)",
    )
    for name, text in WITH.items():
        parser.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=text
        )
    parser.add_argument("--trace", action="store_true", help="print the events of a failing run")
    add_json(parser)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers") from None


def run(args: argparse.Namespace) -> int:
    """Run `headrace simulate`."""
    if args.faults is not None and args.seed is None:
        raise UsageError("--faults needs --seed: each seed has faults of its own")
    seeds = range(args.start, args.start + args.seeds) if args.seed is None else [args.seed]
    began_s = time.monotonic()
    total = _Total()
    progress = _Progress(len(seeds))
    with workers(args.jobs) as pool:
        for outcome in _outcomes(pool, seeds, args):
            total.add(outcome)
            progress.show(total)
            if outcome.failure is not None:
                _clear_progress()
                total.failures.append(_explain(pool, outcome, args))
    _clear_progress()
    elapsed_s = time.monotonic() - began_s
    if args.json:
        print_json(_as_json(total, elapsed_s))
    else:
        _print_tables(total, elapsed_s)
    return 1 if total.failures else 0


class _Total:
    """Sums over seeds."""

    def __init__(self) -> None:
        self.sums = Counter(seeds=0, events=0, simulated_ms=0, acknowledged=0)
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failures: list[Document] = []
        """For each seed that failed, the faults that it needs to fail."""

    def add(self, outcome: SeedOutcome) -> None:
        self.sums.update(
            seeds=1,
            events=outcome.events,
            simulated_ms=outcome.simulated_ms,
            acknowledged=outcome.acknowledged,
        )
        self.counts.update(outcome.counts)
        self.faults.update({kind.value: count for kind, count in outcome.done.items()})


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with a fixed hash seed: sets iterate in the same order, so that a run can be
    replayed anywhere."""
    context = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, PYTHONHASHSEED="0"),
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker) as pool,
    ):
        yield pool


def _begin_worker() -> None:
    logging.disable(logging.CRITICAL)
    unexpected.is_fatal = True
    # `run_seed` frees the objects of a run; those that exist now are never garbage.
    gc.freeze()
    gc.disable()


def _outcomes(
    pool: ProcessPoolExecutor, seeds: Sequence[int], args: argparse.Namespace
) -> Iterator[SeedOutcome]:
    """The outcomes in order of completion. Only a few seeds are submitted at a time, so that Ctrl-C
    ends the command soon."""
    open_runs: set[Future[SeedOutcome]] = set()
    left = iter(seeds)
    while True:
        while len(open_runs) < AHEAD * args.jobs and (seed := next(left, None)) is not None:
            open_runs.add(_submit(pool, seed, args, args.faults))
        if not open_runs:
            return
        done, open_runs = wait(open_runs, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _submit(
    pool: ProcessPoolExecutor, seed: int, args: argparse.Namespace, only: list[int] | None
) -> Future[SeedOutcome]:
    what = {name: getattr(args, name) for name in WITH}
    return pool.submit(
        run_seed,
        seed,
        seconds=args.seconds,
        only=only,
        **(what | {"groups": what["groups"] and seed % WITH_GROUPS == 0}),
    )


def _explain(pool: ProcessPoolExecutor, outcome: SeedOutcome, args: argparse.Namespace) -> Document:
    """Shrink a failing seed's faults and print what is left."""
    numbers = [fault.number for fault in outcome.faults]
    best = outcome

    def fails(part: Sequence[int]) -> bool:
        nonlocal best
        again = _submit(pool, outcome.seed, args, list(part)).result()
        if again.rule == outcome.rule:
            best = again
            return True
        return False

    if args.faults is None:
        report_line(f"seed {outcome.seed} failed: leaving out faults one by one")
        numbers = shrink(numbers, fails)
    replay = (
        f"headrace simulate --seed {outcome.seed} --seconds {args.seconds}"
        f"{''.join(f' --no-{name}' for name in WITH if not getattr(args, name))}"
        f" --faults {','.join(map(str, numbers)) or ','} --trace"
    )
    if not args.json:
        write_line(f"seed {outcome.seed} failed ({outcome.profile})")
        write_line(f"  {best.failure}")
        write_line(f"  {len(numbers)} of {len(outcome.faults)} faults are needed:")
        for fault in best.faults:
            write_line(f"    {fault.at_ms / 1000:9.3f} s  {fault.number}: {fault}")
        if args.trace:
            for line in best.trace:
                write_line(f"  {line}")
        write_line(f"  replay: {replay}")
    return {
        "seed": outcome.seed,
        "rule": outcome.rule,
        "failure": best.failure,
        "faults": [
            {"number": f.number, "at_ms": f.at_ms, "kind": f.kind.value, "text": str(f)}
            for f in best.faults
        ],
        "trace": best.trace if args.trace else None,
        "replay": replay,
    }


class _Progress:
    """Shows the progress: on a terminal in one line that changes, elsewhere in a line a minute."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._began_s = self._printed_s = time.monotonic()

    def show(self, total: _Total) -> None:
        now_s = time.monotonic()
        rate = total.sums["seeds"] / max(0.001, now_s - self._began_s)
        failed = f", {len(total.failures)} failed" if total.failures else ""
        line = f"{total.sums['seeds']} of {self._seeds} seeds, {rate:.1f}/s{failed}"
        if sys.stderr.isatty():
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now_s - self._printed_s >= LOGGED_PROGRESS_S:
            self._printed_s = now_s
            print(line, file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print_tables(total: _Total, elapsed_s: float) -> None:
    print_table(["fault", "times"], sorted(total.faults.items()))
    write_line("")
    sums, counts = total.sums, total.counts
    print_table(
        ["seeds", "events", "simulated s", "acknowledged", *counts, "seconds", "failed"],
        [
            [
                sums["seeds"],
                sums["events"],
                sums["simulated_ms"] // 1000,
                sums["acknowledged"],
                *counts.values(),
                round(elapsed_s, 1),
                len(total.failures),
            ]
        ],
    )
    for failure in total.failures:
        write_line(f"failed: {failure['replay']}")


def _as_json(total: _Total, elapsed_s: float) -> Document:
    return {
        **total.sums,
        **{what.replace(" ", "_"): count for what, count in total.counts.items()},
        "elapsed_s": round(elapsed_s, 3),
        "faults": dict(sorted(total.faults.items())),
        "failures": total.failures,
    }
