"""The rounds of the replication benchmark.

Load, limits and brokers are processes of their own. The progress of a replica is read from the
sizes of its files, so that no broker has to answer for it.
"""

import argparse
import shutil
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import wire_load
from benchmarks.support.failover_clients import TimedProducer
from benchmarks.support.rounds import Goal, Result, compare, compared
from benchmarks.support.wire_frames import ProduceFrames, produce_frames
from benchmarks.support.wire_load import Endpoint, Worker
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.net.deadline import Deadline
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import report_line

REPLICATED_GOAL = Goal(least=0.25)
CATCH_UP_GOAL = Goal(least=0.5)
P99_GOAL = Goal(most=3.0)
"""The project's own goals."""

BATCH_BYTES = 128 << 10
CONNECTIONS = 4
IN_FLIGHT = 4

_BROKERS = 3
_COLD = 3
"""The broker that loses its data; the others lead everything."""
_COLD_TOPICS = 16
_RING = 16
_COLD_RING = 1
"""The number of different batches: making one takes longer than sending it."""
_PIECE_BYTES = 1 << 20
_STEADY = "steady"
_STEADY_S = 4.0
_POLL_S = 0.005
_CATCH_UP_MS = 600_000


def measure(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Yield one result after the other."""
    with ExitStack() as stack:
        near, far = stack.enter_context(Worker()), stack.enter_context(Worker())
        request = UpRequest(brokers=_BROKERS, port=0)
        cluster = stack.enter_context(LocalCluster.running(folder / "cluster", request))
        bench = _Bench(folder=folder, args=args, cluster=cluster, near=near, far=far)
        yield bench.replicated()
        yield from bench.catch_up()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """The cluster, the workers and the arguments of all measurements."""

    folder: Path
    args: argparse.Namespace
    cluster: LocalCluster
    near: Worker
    """The process that sends the load."""
    far: Worker
    """The process that receives the bytes of the limit."""

    # -- acks=all beside acks=1 --------------------------------------------------------------------

    def replicated(self) -> Result:
        """Measure large batches to one partition."""
        with_all = produce_frames("all", BATCH_BYTES, _RING, seed=1, acks=-1)
        with_one = produce_frames("one", BATCH_BYTES, _RING, seed=1)
        result = compare(
            "acks=all over three brokers, 128 KiB batches, MB/s; limit: acks=1 on one",
            lambda: self._produce("all", with_all, [1, 2, 3]),
            lambda: self._produce("one", with_one, [1]),
            rounds=self.args.rounds,
            goal=REPLICATED_GOAL,
        )
        report_line(f"acks=all: {result.measured} of {result.limit} MB/s")
        return result

    def _produce(self, topic: str, frames: ProduceFrames, replicas: list[int]) -> float:
        """Return MB/s into a topic that exists for it alone, so that its pages are free then."""
        size = self.args.bytes
        self.near.run(wire_load.touch_memory, self.folder, size * len(replicas))
        with Cluster(self.cluster.bootstrap_servers) as client:
            create_topic(client, topic, assignment={0: replicas})
            seconds = self._load(frames, replicas[0], CONNECTIONS, size)
            delete_topics(client, [topic])
        return float(size / seconds / 1e6)

    def _load(self, frames: ProduceFrames, leader: int, connections: int, size: int) -> float:
        broker = Endpoint(self.cluster.state.broker(leader).port)
        requests = max(1, size // BATCH_BYTES // connections)
        load = (broker, frames, connections, IN_FLIGHT, requests)
        return float(self.near.run(wire_load.produce, *load))

    # -- a replica without its data ----------------------------------------------------------------

    def catch_up(self) -> Iterator[Result]:
        """Have one broker lose its log dir, and fetch all of it again from the two others."""
        self._fill()
        speeds, limits, before_ms, during_ms = [], [], [], []
        for number in range(1, self.args.rounds + 1):
            self.cluster.stop_broker(_COLD)
            shutil.rmtree(self._folder(_COLD))
            limits.append(self._loopback())
            with TimedProducer(self._without_cold(), _STEADY, [0]) as producer:
                producer.take_latencies_ms()
                time.sleep(_STEADY_S)
                before_ms.append(_p99(producer.take_latencies_ms()))
                speeds.append(self._start_cold(producer))
                during_ms.append(_p99(producer.take_latencies_ms()))
            report_line(
                f"catch-up, round {number}: {speeds[-1]:.0f} of {limits[-1]:.0f} MB/s,"
                f" p99 {during_ms[-1]:.1f} ms, before {before_ms[-1]:.1f} ms"
            )
        what = f"catch-up of {self.args.cold_bytes >> 20} MiB"
        yield compared(f"{what}, MB/s; limit: loopback send", speeds, limits, goal=CATCH_UP_GOAL)
        yield compared(
            f"{what}: p99 of a producer, acks=all, ms; limit: before",
            during_ms,
            before_ms,
            goal=P99_GOAL,
        )

    def _fill(self) -> None:
        with Cluster(self.cluster.bootstrap_servers) as client:
            create_topic(client, _STEADY, assignment={0: [1, 2, _COLD]})
            for number in range(_COLD_TOPICS):
                first, second = (1, 2) if number % 2 else (2, 1)
                create_topic(client, f"cold-{number}", assignment={0: [first, second, _COLD]})
        for number in range(_COLD_TOPICS):
            frames = produce_frames(f"cold-{number}", BATCH_BYTES, _COLD_RING, seed=number)
            self._load(frames, 1 if number % 2 else 2, 1, self.args.cold_bytes // _COLD_TOPICS)
        deadline = Deadline.after(_CATCH_UP_MS)
        while self._stored(1) != self._stored(2):
            deadline.check("the replicas were equal")
            time.sleep(_POLL_S)

    def _start_cold(self, producer: TimedProducer) -> float:
        """Return the MB/s from the first byte of its logs to the last; the producer's latencies
        before that are dropped."""
        wanted = self._stored(1)
        deadline = Deadline.after(_CATCH_UP_MS)
        began_s, began_bytes = 0.0, 0
        with ThreadPoolExecutor(1) as thread:
            # It catches up before it counts as started.
            started = thread.submit(self.cluster.start_broker, _COLD)
            while (size := self._stored(_COLD)) < wanted:
                if not began_bytes and size:
                    began_s, began_bytes = time.perf_counter(), size
                    producer.take_latencies_ms()
                deadline.check("the replica had caught up")
                time.sleep(_POLL_S)
            taken_s = time.perf_counter() - began_s
            started.result()
        return (wanted - began_bytes) / max(taken_s, 1e-9) / 1e6

    def _stored(self, broker: int) -> int:
        """Return the bytes of the cold topics on a broker."""
        folder = self._folder(broker)
        return sum(_log_bytes(folder / f"cold-{n}-0") for n in range(_COLD_TOPICS))

    def _loopback(self) -> float:
        """Return the MB/s of a plain send of as many bytes."""
        size = self.args.cold_bytes
        self.far.begin(wire_load.drain, size)
        ring = bytes(_PIECE_BYTES)
        seconds = self.near.run(wire_load.push, self.far.port, ring, _PIECE_BYTES, size)
        self.far.result()
        return float(size / seconds / 1e6)

    def _folder(self, broker: int) -> Path:
        return self.cluster.directory / self.cluster.state.broker(broker).data_dir

    def _without_cold(self) -> str:
        return ",".join(
            f"{entry.host}:{entry.port}"
            for entry in self.cluster.state.brokers
            if entry.id != _COLD
        )


def _log_bytes(folder: Path) -> int:
    """Return the bytes of a log's segments; 0 while the folder does not exist."""
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def _p99(latencies_ms: list[float]) -> float:
    """Return the 99th percentile; 0 for fewer than two latencies."""
    return statistics.quantiles(latencies_ms, n=100)[98] if len(latencies_ms) > 1 else 0.0
