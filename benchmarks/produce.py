"""Records of 100 bytes a second to one broker of its own: `Producer` beside kafka-python and
confluent-kafka, the latter where it is installed.

Each client has its own defaults, 5 ms to linger, and waits for what it has sent. Tables are beside
batches that were encoded before.

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
