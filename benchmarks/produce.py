"""Measures how many records of 100 bytes a second reach a broker: `Producer` beside kafka-python
and, where it is installed, confluent-kafka.

Each client has its own defaults and a linger of 5 ms, and waits for the acknowledgements. Tables
are compared with batches that were encoded before.

examples:
  headrace bench produce
  headrace bench produce --records 20000 --rounds 1 --json
"""

import argparse
from collections.abc import Iterable

from benchmarks.support import clients as bench_clients
from benchmarks.support.clients import HAS_CONFLUENT, Clients, Comparison
from benchmarks.support.rounds import Goal

add_arguments = bench_clients.add_arguments


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench produce`."""
    return bench_clients.run(args, _comparisons)


def _comparisons(clients: Clients) -> Iterable[Comparison]:
    yield (
        "send_table, beside encoded batches",
        clients.send_table,
        clients.encoded_batches,
        Goal(least=0.6),
    )
    yield "send, beside kafka-python", clients.send, clients.kafka_python_send, Goal(least=2)
    if HAS_CONFLUENT:
        yield "send, beside confluent-kafka", clients.send, clients.confluent_send, None
        yield "send_table, beside confluent-kafka", clients.send_table, clients.confluent_send, None
