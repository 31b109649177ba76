"""Measures what it costs to have several brokers on one host in place of one.

The same load goes to a broker alone, and to each of 2, 4 and 8 beside one another: it leads eight
partitions, which are written and then read once over a connection each. The clients are cheap,
since all requests lie ready and answers are only counted: a process writes, and the same reads.
Each broker is pinned to a core, one after the other over those that there are, and the clients'
time does not count. The most brokers get the load also one after the other, while the rest have
none: what is more when all have it at once is what they take from each other.

The figure is the processor time of all brokers for a GB (10^9 bytes) of record batches, which are
written with acks=all and read once. By turns each number of brokers is measured in every round, and
compared with the fewest of that replication factor: one broker, and with three replicas the fewest
that can have them. How many GB/s the brokers would carry with a core for each is computed from
their processor time: the machine may have fewer cores than brokers.

examples:
  headrace bench one-host
  headrace bench one-host --brokers 1,2 --bytes 33554432 --rounds 1 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, print_compared, scratch
from benchmarks.support.rounds import FIGURE_COLUMNS, Cell, Figure
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import UsageError

MOST_BROKERS = 16
"""The most brokers of one size: those of all sizes run at the same time."""

_COLUMNS = FIGURE_COLUMNS[:-1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench one-host`."""
    add_dir(parser)
    parser.add_argument(
        "--brokers",
        default=(1, 2, 4, 8),
        type=numbers_of_brokers,
        metavar="N[,N…]",
        help="how many brokers share the host, one size after the other (default 1,2,4,8)",
    )
    add_numbers(
        parser,
        ("--bytes", 64 << 20, "bytes of record batches that each broker gets in a round"),
        ("--rounds", 5, "rounds, after one to warm up"),
    )
    add_json(parser)


def numbers_of_brokers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list; ValueError for what is none."""
    return tuple(int(part) for part in text.split(","))


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench one-host`."""
    sizes = args.brokers
    if not all(1 <= size <= MOST_BROKERS for size in sizes) or list(sizes) != sorted(set(sizes)):
        raise UsageError(
            f"--brokers {','.join(map(str, sizes))} is impossible; give numbers from 1 to "
            f"{MOST_BROKERS} that rise, such as 1,2,4,8"
        )
    from benchmarks.scaling.one_host import measure

    with scratch(args.dir) as folder:
        results = list(measure(folder, sizes, args.bytes, args.rounds))
    print_compared(_COLUMNS, results, _cells, as_json=args.json)
    return 0


def _cells(figure: Figure) -> list[Cell]:
    return [
        figure.what, figure.measured, figure.limit, figure.ratio, figure.spread, figure.goal,
        figure.met,
    ]  # fmt: skip
