"""Measures what metrics cost a broker: producing with them and without, and a scrape of many
partitions.

The benchmark starts one broker and switches its counting of requests on and off while it runs. The
same requests go to it by turns, a few hundredths of a second each, and each turn with metrics is
compared with the turn without metrics beside it. The figure is the processor time of the broker for
a request, which depends less on other load of the machine than a rate does: the median of the
turns' ratios, with the middle half of them. Scrapes are measured by themselves, with a topic of
many partitions.

examples:
  headrace bench metrics
  headrace bench metrics --turns 400 --json
"""

import argparse
import contextlib
import statistics
import time
import urllib.request
from dataclasses import dataclass

from benchmarks.arguments import add_numbers, scratch
from benchmarks.metered.switched_broker import SwitchedBroker, switched_broker
from benchmarks.support import wire_load
from benchmarks.support.rounds import COLUMNS, Goal, Result, alone, judged, ratios_of, rounded
from benchmarks.support.wire_frames import produce_frames
from benchmarks.support.wire_load import Endpoint, Worker
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results, report_line

MOST_COST = 1.02
MOST_SCRAPE_MS = 50
MOST_SCRAPE_MB = 2.0
SCRAPES = 10
PAUSE_S = 1.05
"""The pause between scrapes: brokers cache their text for a second."""

TOPIC = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    what: str
    batch_bytes: int
    connections: int
    in_flight: int
    ring: int


LOADS = (
    Load(what="1 KiB, one by one", batch_bytes=1 << 10, connections=4, in_flight=1, ring=64),
    Load(what="1 KiB, 32 in flight", batch_bytes=1 << 10, connections=1, in_flight=32, ring=256),
    Load(what="16 KiB, 4 x 8", batch_bytes=16 << 10, connections=4, in_flight=8, ring=64),
    Load(what="128 KiB, 4 x 4", batch_bytes=128 << 10, connections=4, in_flight=4, ring=64),
)
WARM_UP_REQUESTS = 1_000
TURNS_PER_TOPIC = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench metrics`."""
    add_numbers(
        parser,
        ("--turns", 200, "turns with metrics, and as many without, of each load"),
        ("--turn-ms", 30, "processor time of the broker in a turn, in milliseconds"),
        ("--partitions", 1000, "partitions whose metrics a scrape reads"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench metrics`; 0 also when a goal is missed, as this only measures."""
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch())
        worker = stack.enter_context(Worker())
        broker = stack.enter_context(switched_broker(folder / "broker"))
        for load in LOADS:
            report_line(f"produce, {load.what}")
            results.append(_produce(worker, broker, load, args))
        report_line(f"scrapes of {args.partitions} partitions")
        results += _scrapes(broker, args.partitions)
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _produce(
    worker: Worker, broker: SwitchedBroker, load: Load, args: argparse.Namespace
) -> Result:
    frames = produce_frames(TOPIC, load.batch_bytes, load.ring, seed=1)

    def cost_us(requests: int, *, on: bool) -> float:
        """Return the broker's processor time per request."""
        broker.switch(on=on)
        ends = load.connections, load.in_flight, requests
        before_s = broker.cpu_s
        worker.run(wire_load.produce, Endpoint(broker.port), frames, *ends)
        return (broker.cpu_s - before_s) / (requests * load.connections) * 1e6

    ours, theirs = [], []
    requests = WARM_UP_REQUESTS
    with Cluster(broker.servers) as cluster:
        for turn in range(args.turns):
            if turn % TURNS_PER_TOPIC == 0:
                # Only the records of a few turns stay in memory and on the disk.
                if turn:
                    delete_topics(cluster, [TOPIC])
                create_topic(cluster, TOPIC, 1, 1)
                used_us = cost_us(requests, on=False)
                requests = max(1, int(args.turn_ms * 1000 / used_us / load.connections))
            pair = {on: cost_us(requests, on=on) for on in ((True, False), (False, True))[turn % 2]}
            ours.append(pair[True])
            theirs.append(pair[False])
        delete_topics(cluster, [TOPIC])
    return _compared(f"produce, {load.what}, broker's CPU µs a request", ours, theirs)


def _compared(what: str, ours: list[float], theirs: list[float]) -> Result:
    ratios = ratios_of(ours, theirs)
    ratio = round(statistics.median(ratios), 4)
    middle = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratio] * 3
    return Result(
        what=f"{what}, beside none (half of the ratios are {middle[0]:.3f}-{middle[2]:.3f})",
        measured=rounded(statistics.median(ours)),
        limit=rounded(statistics.median(theirs)),
        ratio=ratio,
        **judged(Goal(most=MOST_COST), ratio),
    )


def _scrape(broker: SwitchedBroker) -> bytes:
    with urllib.request.urlopen(broker.metrics_url, timeout=30) as answer:
        text: bytes = answer.read()
        return text


def _scrapes(broker: SwitchedBroker, partitions: int) -> list[Result]:
    with Cluster(broker.servers) as cluster:
        create_topic(cluster, "a-topic-of-many-partitions", partitions, 1)
    costs_ms, size = [], 0
    for _ in range(SCRAPES):
        time.sleep(PAUSE_S)
        before_s = broker.cpu_s
        size = len(_scrape(broker))
        costs_ms.append((broker.cpu_s - before_s) * 1000)
    return [
        alone(
            f"a scrape of {partitions} partitions, broker's CPU ms with all else that it does",
            statistics.median(costs_ms),
            goal=Goal(most=MOST_SCRAPE_MS),
        ),
        alone("its size, MB", size / 1e6, goal=Goal(most=MOST_SCRAPE_MB)),
    ]
