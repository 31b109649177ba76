"""Measures what metrics cost a broker: producing with them and without, and a scrape of many
partitions.

Two brokers are up all the time, one with metrics.listener and one without. The same requests go to
them by turns; the one with metrics is scraped every second meanwhile. The figure is the processor
time of the broker for the same work, which other load on the machine weighs on less than on rates:
the median of the rounds' ratios. Then the broker with metrics gets a topic of many partitions, and
is scraped.

examples:
  headrace bench metrics
  headrace bench metrics --bytes 67108864 --rounds 3 --json
"""

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support import wire_load
from benchmarks.support.rounds import Goal, Result, alone, compare
from benchmarks.support.wire_frames import ProduceFrames, produce_frames
from benchmarks.support.wire_load import Worker
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import print_json, print_table, report_line

COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")

MOST_COST = 1.02
MOST_SCRAPE_MS = 50
MOST_SCRAPE_MB = 2.0
SCRAPES = 20
PAUSE_S = 1.05
"""From one scrape to the next: a text serves others for a second."""

TOPIC = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    what: str
    batch_bytes: int
    connections: int
    in_flight: int
    ring: int


LOADS = (
    Load(what="1 KiB, 32 in flight", batch_bytes=1 << 10, connections=1, in_flight=32, ring=256),
    Load(what="16 KiB, 4 x 8", batch_bytes=16 << 10, connections=4, in_flight=8, ring=64),
    Load(what="128 KiB, 4 x 4", batch_bytes=128 << 10, connections=4, in_flight=4, ring=64),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBroker:
    servers: str
    port: int
    pid: int
    metrics_url: str | None

    @property
    def cpu_s(self) -> float:
        """Of all its threads, in nanosecond steps: /proc has steps of 10 ms."""
        return time.clock_gettime((~self.pid << 3) | 2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench metrics`."""
    for name, default, meaning in (
        ("--bytes", 256 << 20, "bytes of a round; small batches take an eighth"),
        ("--rounds", 5, "rounds of each measurement, after one to warm up"),
        ("--partitions", 1000, "partitions that a scrape tells of"),
    ):
        parser.add_argument(
            name,
            default=default,
            type=positive_integer,
            metavar="N",
            help=f"{meaning} (default {default})",
        )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench metrics`; 0 also when a goal is missed, as this only measures."""
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        worker = stack.enter_context(Worker())
        measured = stack.enter_context(_broker(folder / "with", {}))
        without = stack.enter_context(_broker(folder / "without", {"metrics.listener": ""}))
        for load in LOADS:
            report_line(f"produce, {load.what}")
            results.append(_produce(worker, measured, without, load, args))
        report_line(f"scrapes of {args.partitions} partitions")
        results += _scrapes(measured, args.partitions)
    if args.json:
        print_json([asdict(result) for result in results])
    else:
        print_table(COLUMNS, [list(asdict(result).values()) for result in results])
    return 0


@contextlib.contextmanager
def _broker(folder: Path, settings: Mapping[str, str]) -> Iterator[MeasuredBroker]:
    request = UpRequest(brokers=1, port=0, settings=tuple(settings.items()))
    with LocalCluster.running(folder, request) as cluster:
        (entry,) = cluster.state.brokers
        assert entry.pid is not None
        yield MeasuredBroker(
            servers=cluster.bootstrap_servers,
            port=entry.port,
            pid=entry.pid,
            metrics_url=entry.metrics_url,
        )


def _produce(
    worker: Worker,
    measured: MeasuredBroker,
    without: MeasuredBroker,
    load: Load,
    args: argparse.Namespace,
) -> Result:
    frames = produce_frames(TOPIC, load.batch_bytes, load.ring, seed=1)
    size = args.bytes // (8 if load.connections == 1 else 1)
    requests = max(1, size // load.batch_bytes // load.connections)

    def cost(broker: MeasuredBroker) -> float:
        """Processor time of the broker per request, in µs."""
        with Cluster(broker.servers) as cluster:
            create_topic(cluster, TOPIC, 1, 1)
            with _scraped(broker):
                before_s = broker.cpu_s
                _send(worker, broker, frames, load, requests)
                used_s = broker.cpu_s - before_s
            delete_topics(cluster, [TOPIC])
        return float(used_s / (requests * load.connections) * 1e6)

    return compare(
        f"produce, {load.what}, broker's CPU µs a request, beside none",
        lambda: cost(measured),
        lambda: cost(without),
        rounds=args.rounds,
        goal=Goal(most=MOST_COST),
    )


def _send(
    worker: Worker, broker: MeasuredBroker, frames: ProduceFrames, load: Load, requests: int
) -> None:
    worker.run(wire_load.produce, broker.port, frames, load.connections, load.in_flight, requests)


@contextlib.contextmanager
def _scraped(broker: MeasuredBroker) -> Iterator[None]:
    """Scraped once a second within the block, where it has metrics."""
    over = threading.Event()

    def scrape_on() -> None:
        while not over.wait(1):
            _scrape(broker)

    thread = threading.Thread(target=scrape_on)
    if broker.metrics_url is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if broker.metrics_url is not None:
            thread.join()


def _scrape(broker: MeasuredBroker) -> bytes:
    assert broker.metrics_url is not None
    with urllib.request.urlopen(broker.metrics_url, timeout=30) as answer:
        text: bytes = answer.read()
        return text


def _scrapes(broker: MeasuredBroker, partitions: int) -> list[Result]:
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
