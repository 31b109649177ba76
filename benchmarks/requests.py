"""Measures what the largest requests cost a broker: for every list of every API that clients are
served, the processor time of its event loop and of its threads, the longest turn of the loop, and
the memory.

The broker runs in this process, over simulated ports. With --memory, a second round measures the
most memory that was in use, and the memory still in use three seconds after the request.

With --record it measures instead the cost of one record that is produced with acks=all and read by
a consumer: the calls and the processor time of each step on the leader and on a follower, without
what sockets cost.

With --state it measures the largest states that clients may leave in a broker: their memory, and
the longest step of each kind that they cause.

examples:
  headrace bench requests
  headrace bench requests --items 20000 --api Fetch
  headrace bench requests --memory --json
  headrace bench requests --record
  headrace bench requests --state
"""

import argparse
import time
from dataclasses import dataclass

from benchmarks.arguments import add_numbers, scratch
from benchmarks.largest.requests import TOPIC, largest_requests
from benchmarks.largest.states import LARGEST, built, costs_of_steps
from simulation.record_steps import RecordSteps
from simulation.request_costs import CostMeter
from storage_engine.broker.garbage_collection import collect_seldom
from storage_engine.protocol.apis.spec import MAX_ITEMS
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results, report_line

TURN_BUDGET_MS = 20
"""The longest allowed turn of the event loop."""

FRAME_MAX_BYTES = 100 << 20
"""The default socket.request.max.bytes."""

COLUMNS = (
    "api", "list", "items", "kib", "loop ms", "turn ms", "threads ms", "peak mib", "kept mib",
    "within",
)  # fmt: skip

RECORDS = 500
"""The number of records that are sent to measure one."""

RECORD_COLUMNS = ("broker", "step", "times", "calls", "us")

STATE_ROUNDS = 3
"""The number of rounds, of which the least counts: other load adds processor time, too."""

STATE_COLUMNS = ("state", "entries", "mib", "step", "ms", "within")


@dataclass(frozen=True, slots=True)
class Row:
    """The costs of one request."""

    api: str
    items: str
    count: int
    kib: int
    loop_ms: float
    turn_ms: float
    threads_ms: float
    peak_mib: float | None
    kept_mib: float | None
    is_within: bool


@dataclass(frozen=True, slots=True)
class StateRow:
    """The longest step of one kind that a state causes."""

    state: str
    entries: int
    mib: float
    step: str
    ms: float
    is_within: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench requests`."""
    add_numbers(
        parser,
        ("--items", MAX_ITEMS, "items of each list, where so many fit in a request"),
        ("--partitions", 1000, "partitions of the topic in the requests"),
    )
    parser.add_argument("--api", metavar="NAME", help="measure only this API")
    parser.add_argument(
        "--refused", action="store_true", help="send requests that the client is not authorized for"
    )
    parser.add_argument("--memory", action="store_true", help="measure memory too")
    parser.add_argument(
        "--record", action="store_true", help="measure each step of one acknowledged record instead"
    )
    parser.add_argument(
        "--state", action="store_true", help="measure the largest states that clients leave instead"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench requests`; 1 when a turn was longer than the budget."""
    if args.record:
        return _run_record(as_json=args.json)
    if args.state:
        return _run_states(as_json=args.json)
    rows = []
    with scratch() as folder:
        meter = CostMeter(folder, TOPIC, args.partitions, is_refused=args.refused)
        # As a broker does when it has started.
        collect_seldom()
        try:
            for request in largest_requests(args.items, FRAME_MAX_BYTES, args.api):
                cost = meter.cost(request.frame)
                peak = kept = None
                if args.memory:
                    peak, kept = (round(each / 2**20, 1) for each in meter.memory(request.frame))
                row = Row(
                    request.name,
                    request.items,
                    request.count,
                    len(request.frame) >> 10,
                    round(cost.loop_ms, 1),
                    round(cost.turn_ms, 1),
                    round(cost.threads_ms, 1),
                    peak,
                    kept,
                    cost.turn_ms <= TURN_BUDGET_MS,
                )
                rows.append(row)
                report_line(f"{row.api} {row.items}: {row.turn_ms} ms a turn, {row.loop_ms} ms")
        finally:
            meter.close()
    print_results(COLUMNS, rows, as_json=args.json)
    return 0 if all(row.is_within for row in rows) else 1


def _run_record(*, as_json: bool) -> int:
    with scratch() as folder:
        steps = RecordSteps(folder)
        collect_seldom()
        try:
            rows = steps.rows(RECORDS)
        finally:
            steps.close()
    print_results(RECORD_COLUMNS, rows, as_json=as_json)
    return 0


def _run_states(*, as_json: bool) -> int:
    collect_seldom()
    rows = []
    for each in LARGEST:
        _, taken = built(each, each.entries)
        # Anew, since the work is not to pay for the measurement of memory.
        costs: dict[str, float] = {}
        for _ in range(STATE_ROUNDS):
            once = costs_of_steps(each.state(each.entries).steps(), time.thread_time)
            costs = {step: min(spent, costs.get(step, spent)) for step, spent in once.items()}
        for step, seconds in costs.items():
            ms = round(1000 * seconds, 1)
            mib = round(taken / 2**20, 1)
            rows.append(StateRow(each.name, each.entries, mib, step, ms, ms <= TURN_BUDGET_MS))
        report_line(f"{each.name}: {max(costs.values()) * 1000:.1f} ms a step")
    print_results(STATE_COLUMNS, rows, as_json=as_json)
    return 0 if all(row.is_within for row in rows) else 1
