"""Measures how much clients that send the most expensive requests slow down another client.

The benchmark starts three brokers over loopback and measures, first alone and then beside the
hostile clients, each of which is a process:

- a client that produces with acks=all, one request after the other: the latency of each;
- a client that sends the leader nothing but ApiVersions requests: their latency shows the longest
  turn of the event loop;
- then a producer that offers a batch every 5 ms, five requests in flight at most. Its latency
  includes the queue in the producer, which grows when five requests take longer than 25 ms.

examples:
  headrace bench hostile
  headrace bench hostile --seconds 60 --json
"""

import argparse
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arguments import scratch
from benchmarks.support.rounds import COLUMNS, Goal, Result, judged, percentile
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import print_results, report_line

if TYPE_CHECKING:
    from storage_engine.tools.local.local_cluster import LocalCluster

PRODUCE_GOAL = Goal(most=200.0)
WARM_UP_S = 5
"""The time in which the hostile processes start, and modules are imported on first use."""

_PAUSE_S = 0.002
"""The pause between an answer and the next request."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench hostile`."""
    parser.add_argument(
        "--seconds",
        type=positive_integer,
        default=20,
        metavar="N",
        help="seconds of each measurement (default 20)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench hostile`; 1 when the producer waited longer than the goal."""
    with scratch() as folder:
        results = _measure(folder, args.seconds)
    print_results(COLUMNS, results, as_json=args.json)
    return 0 if all(result.met is not False for result in results) else 1


def _measure(folder: Path, seconds: int) -> list[Result]:
    from benchmarks.support.hostile_clients import (
        COMPACTED_TOPIC,
        HELD_TOPIC,
        TIMED_TOPIC,
        HostileClients,
        large_batch,
    )
    from benchmarks.support.wire_load import Endpoint, ask, connect
    from storage_engine.client.admin.topics import create_topic
    from storage_engine.client.cluster import Cluster
    from storage_engine.tools.local.cluster_plan import UpRequest
    from storage_engine.tools.local.local_cluster import LocalCluster

    with LocalCluster.running(folder / "cluster", UpRequest(brokers=3, port=0)) as cluster:
        port = cluster.state.broker(1).port
        with Cluster(cluster.bootstrap_servers) as client:
            create_topic(client, HELD_TOPIC, assignment={0: [1, 2, 3]})
            create_topic(client, TIMED_TOPIC, assignment={0: [1, 2, 3]})
            compacted = {"cleanup.policy": "compact"}
            create_topic(client, COMPACTED_TOPIC, configs=compacted, assignment={0: [1, 2, 3]})
        with connect(Endpoint(port)) as connection:
            ask(connection, large_batch(TIMED_TOPIC))
        _round(cluster, WARM_UP_S)
        alone = _round(cluster, seconds)
        with HostileClients(port) as hostile:
            time.sleep(WARM_UP_S)
            beside = _round(cluster, seconds)
            for kind, answered in hostile.answered.items():
                report_line(f"{kind}: {answered.value} answered")
                if not answered.value:
                    raise CommandError(f"'{kind}' was refused each time, so nothing is measured")
    return [
        _result("produce with acks=all, p50 ms", alone.produce, beside.produce, 50.0),
        _result("produce with acks=all, p99 ms", alone.produce, beside.produce, 99.0, PRODUCE_GOAL),
        _result("produce with acks=all, most ms", alone.produce, beside.produce, 100.0),
        _result("200 batches a second, p99 ms", alone.stream, beside.stream, 99.0),
        _result("ApiVersions, p50 ms", alone.versions, beside.versions, 50.0),
        _result("ApiVersions, p99.9 ms", alone.versions, beside.versions, 99.9),
    ]


@dataclass(frozen=True, slots=True)
class _Round:
    """The milliseconds of each request."""

    produce: list[float]
    versions: list[float]
    stream: list[float]


def _round(cluster: "LocalCluster", seconds: int) -> _Round:
    """Measure requests one after the other, then the stream."""
    from benchmarks.support.failover_clients import TimedProducer
    from benchmarks.support.hostile_clients import HELD_TOPIC, steady_batch

    port = cluster.state.broker(1).port
    produce_ms: list[float] = []
    versions_ms: list[float] = []
    is_over = threading.Event()
    threads = [
        threading.Thread(target=_ask_over_and_over, args=(port, frame, into, is_over))
        for frame, into in ((steady_batch(), produce_ms), (_API_VERSIONS, versions_ms))
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    is_over.set()
    for thread in threads:
        thread.join()
    with TimedProducer(cluster.bootstrap_servers, HELD_TOPIC, [0]) as producer:
        producer.take_latencies_ms()
        time.sleep(seconds)
        return _Round(produce_ms, versions_ms, producer.take_latencies_ms())


def _ask_over_and_over(
    port: int, frame: bytes, into: list[float], is_over: threading.Event
) -> None:
    from benchmarks.support.wire_load import Endpoint, ask, connect

    with connect(Endpoint(port)) as connection:
        while not is_over.is_set():
            begun_s = time.perf_counter()
            ask(connection, frame)
            into.append((time.perf_counter() - begun_s) * 1000)
            time.sleep(_PAUSE_S)


def _result(
    what: str,
    alone_ms: list[float],
    beside_ms: list[float],
    percent: float,
    goal: Goal | None = None,
) -> Result:
    alone, beside = percentile(alone_ms, percent), percentile(beside_ms, percent)
    return Result(
        what=f"{what}; limit: without the hostile",
        measured=round(beside, 1),
        limit=round(alone, 1),
        ratio=round(beside / alone, 2) if alone else None,
        **judged(goal, beside),
    )
