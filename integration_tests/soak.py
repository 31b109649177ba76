"""A query on the exactly-once sink that runs while one thing after the other goes wrong, and the
judgement of what it wrote.

    python -m integration_tests.soak --minutes 30 --seed 1

A producer writes unique ids to a topic; a streaming query copies them, with values and partitions
that differ at every replay, to another; a reader of committed rows watches. A random fault comes
every few seconds, at a random stage of a micro-batch or at any time, and whatever died is started
again. In the end nothing is broken any more, the query runs to the end, and every id must be there
once. The last line is the verdict; the exit status is 0 when it was exactly once. The folder of
brokers and query, with their logs, is kept when it was not, and named.

    python -m integration_tests.soak --minutes 2 --broken replay-twice

runs the same on a sink that is broken on purpose (`broken_sinks`): then the verdict has to be a bad
one, and the exit status 1.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from integration_tests.exactly_once.broken_sinks import BROKEN
from integration_tests.exactly_once.soak_faults import Soak
from integration_tests.support.spark_support import IdProducer
from storage_engine.core.errors import HeadraceError

REPORT_S = 10.0
IDS_PER_SECOND = 400


def main(arguments: argparse.Namespace) -> int:
    say = _clocked()
    folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    say(f"works in {folder}")
    try:
        verdict, good = soak(arguments, folder, say)
    except (AssertionError, HeadraceError) as failure:
        verdict, good = f"NOT SHOWN, {' '.join(str(failure).split())}", False
    if good:
        shutil.rmtree(folder)
    else:
        say(f"logs are kept in {folder}")
    print(f"soak: {verdict}; seed {arguments.seed}, {arguments.minutes:g} minutes", flush=True)
    return 0 if good else 1


def soak(
    arguments: argparse.Namespace, folder: Path, say: Callable[[str], None]
) -> tuple[str, bool]:
    """The verdict, and whether it is good."""
    done: Counter[str] = Counter()
    with Soak(folder, arguments.seed, say, broken=arguments.broken) as running:
        say("three brokers and Spark are up")
        with IdProducer(running.servers, running.source, per_second=arguments.rate) as producer:
            running.wait_for_progress()
            deadline = time.monotonic() + arguments.minutes * 60
            reported = time.monotonic()
            while time.monotonic() < deadline:
                done[running.fault()] += 1
                if time.monotonic() - reported >= REPORT_S:
                    reported = time.monotonic()
                    say(_progress(running, producer, done))
        say(f"no more faults; {producer.acknowledged:,} ids are written, the query goes to its end")
        findings = running.finish(producer.acknowledged)
    what = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    if findings.complaints:
        return f"NOT exactly once after {what}: " + "; ".join(findings.complaints), False
    return (
        f"exactly once, {producer.acknowledged:,} ids in {findings.batches:,} micro-batches over "
        f"{done.total()} faults ({what}) and {running.restarts} restarts; by the last fault a "
        f"reader had seen {findings.seen:,} rows and stood at {findings.looks:,} ends, never in a "
        f"batch; undisturbed batches were readable {findings.median_s:.2f} s after their commit "
        f"(median of {findings.undisturbed:,}), {findings.longest_s:.2f} s at the longest"
    ), True


def _progress(running: Soak, producer: IdProducer, done: Counter[str]) -> str:
    return (
        f"{producer.acknowledged:,} ids written, {running.rows_seen():,} rows read in "
        f"{running.batches_seen():,} micro-batches; {done.total()} faults, {running.restarts} "
        "restarts"
    )


def _clocked() -> Callable[[str], None]:
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", flush=True)

    return say


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m integration_tests.soak", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults (30)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults (0)")
    parser.add_argument(
        "--rate", type=int, default=IDS_PER_SECOND, help=f"ids a second ({IDS_PER_SECOND})"
    )
    parser.add_argument(
        "--broken", choices=sorted(BROKEN), help="a sink that is not exactly once, to be found out"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse_arguments(sys.argv[1:])))
