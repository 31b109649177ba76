"""Measures how many records of 100 bytes a second a client reads from a broker: `Consumer` beside
kafka-python and, where it is installed, confluent-kafka.

Each round starts a new client with its own defaults, which reads four partitions from the start.

examples:
  headrace bench consume
  headrace bench consume --records 20000 --rounds 1 --json
"""

import argparse
from collections.abc import Iterable

from benchmarks.support import clients as bench_clients
from benchmarks.support.clients import HAS_CONFLUENT, Clients, Comparison
from benchmarks.support.rounds import Goal

add_arguments = bench_clients.add_arguments


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench consume`."""
    return bench_clients.run(args, _comparisons)


def _comparisons(clients: Clients) -> Iterable[Comparison]:
    clients.fill()
    theirs, fastest = clients.kafka_python_poll, clients.confluent_consume
    yield "poll_table, beside kafka-python", clients.poll_table, theirs, Goal(least=5)
    yield "poll, beside kafka-python", clients.poll, theirs, Goal(least=1.5)
    yield "iteration, beside kafka-python", clients.iterate, theirs, Goal(least=1.5)
    if HAS_CONFLUENT:
        yield "poll_table, beside confluent-kafka", clients.poll_table, fastest, None
        yield "poll, beside confluent-kafka", clients.poll, fastest, None
