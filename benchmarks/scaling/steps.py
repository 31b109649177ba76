"""The steps of the benchmark of scale, one after the other on one cluster.

A step lasts until clients see its end. Processor time is that of the processes that still run, by
the kernel's clocks: the time of a broker that was killed does not count.
"""

import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.beside_kafka.processor_time import check_proc, seconds_of
from benchmarks.support.failover_clients import Watched
from benchmarks.support.rounds import rounded
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.net.deadline import Deadline
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

PARTITIONS_PER_TOPIC = 1000

_BROKERS = (1, 2, 3)
_READY_MS = 900_000
_METADATA_ROUNDS = 5
_METRICS_S = 120
"""The timeout of a scrape: a broker has metrics of each partition."""

_LONGEST_TURN = "headrace_loop_longest_turn_seconds"
_QUIET_S = 3.0
"""The pause after each step, so that its remaining work does not count in the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The figure of one step, or one amount."""

    what: str
    seconds: float | None = None
    brokers_cpu_s: float | None = None
    zookeeper_cpu_s: float | None = None
    amount: float | None = None
    unit: str | None = None


def measure(folder: Path, partitions: int, progress: Callable[[str], None]) -> Iterator[Figure]:
    """Yield one figure after the other."""
    check_proc()
    request = UpRequest(brokers=len(_BROKERS), port=0)
    with LocalCluster.running(folder / "cluster", request) as cluster:
        for figure in _Steps(cluster, partitions).all():
            progress(_line(figure))
            yield figure


def _line(figure: Figure) -> str:
    if figure.amount is not None:
        return f"{figure.what}: {figure.amount} {figure.unit}"
    return f"{figure.what}: {figure.seconds} s, brokers {figure.brokers_cpu_s} s of processor time"


def _metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=_METRICS_S) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise CommandError(f"{url} does not tell {name}")


class _Steps:
    """All steps on one cluster."""

    def __init__(self, cluster: LocalCluster, partitions: int) -> None:
        self._cluster = cluster
        self._watched = Watched(cluster, _READY_MS)
        self._partitions = partitions
        self._topics: dict[str, int] = {}
        self._figures: list[Figure] = []

    def all(self) -> Iterator[Figure]:
        """Create partitions, read metadata, kill brokers, start them again."""
        before_mib = self._resident_mib()
        yield from self._step("created, until all accept acks=all", self._create)
        yield from self._step("created, until all are in sync", self._until_in_sync)
        yield from self._metadata()
        yield self._memory(before_mib)
        yield self._descriptors()
        yield from self._killed("broker", self._watched.not_controller())
        yield from self._killed("controller", self._watched.controller())
        yield from self._stopped(self._watched.not_controller())
        yield self._memory(before_mib, " after restarts")

    def _step(self, what: str, work: Callable[[], None], but: int | None = None) -> list[Figure]:
        """Measure a step. `but`: a broker that ends in this step."""
        with self._measured(what, but):
            work()
        longest = self._longest_turn(what, but)
        time.sleep(_QUIET_S)
        return [self._figures.pop(), longest]

    def _longest_turn(self, what: str, but: int | None) -> Figure:
        """Return the brokers' longest turn in the last minute: of a longer step, in its end."""
        turns = [
            _metric(each.metrics_url, _LONGEST_TURN)
            for each in self._cluster.state.brokers
            if each.id != but and each.metrics_url is not None
        ]
        what = f"{what}: longest turn of a loop in its last minute"
        return Figure(what=what, amount=rounded(max(turns) * 1000), unit="ms")

    @contextmanager
    def _measured(self, what: str, but: int | None) -> Iterator[None]:
        before = self._processes(but)
        cpu_before = {pid: seconds_of([pid]) for pid in before.values()}
        started_s = time.monotonic()
        yield
        taken_s = time.monotonic() - started_s
        # One that was started meanwhile counts from its start.
        cpu_s = {
            name: seconds_of([pid]) - cpu_before.get(pid, 0.0)
            for name, pid in self._processes(but).items()
        }
        zookeeper_s = cpu_s.pop("zookeeper")
        figure = Figure(
            what=what,
            seconds=rounded(taken_s),
            brokers_cpu_s=rounded(sum(cpu_s.values())),
            zookeeper_cpu_s=rounded(zookeeper_s),
        )
        self._figures.append(figure)

    # -- the steps ---------------------------------------------------------------------------------

    def _create(self) -> None:
        left = self._partitions
        with Cluster(self._cluster.bootstrap_servers) as client:
            while left:
                count = min(left, PARTITIONS_PER_TOPIC)
                topic = f"scale-{len(self._topics) + 1}"
                create_topic(client, topic, count, len(_BROKERS))
                self._topics[topic] = count
                left -= count
        self._until_writable()

    def _killed(self, name: str, broker: int) -> Iterator[Figure]:
        with self._watched.survivors(but=broker) as survivors:

            def kill() -> None:
                self._cluster.kill_broker(broker)
                deadline = Deadline.after(_READY_MS)
                if name == "controller":
                    survivors.until_controller_is_not(broker, deadline)
                for topic in self._topics:
                    survivors.write_to_all(topic, deadline)

            yield from self._step(f"{name} killed, until all accept acks=all", kill, but=broker)
        yield from self._started(f"{name} started again after SIGKILL", broker)

    def _stopped(self, broker: int) -> Iterator[Figure]:
        def stop() -> None:
            self._cluster.stop_broker(broker, timeout_s=_READY_MS / 1000)
            self._until_writable(but=broker)

        yield from self._step("broker stopped, controlled shutdown", stop, but=broker)
        yield from self._started("broker started again after that", broker)

    def _started(self, what: str, broker: int) -> Iterator[Figure]:
        yield from self._step(f"{what}, until it serves", lambda: self._watched.start(broker))
        yield from self._step(f"{what}, then until all are in sync", self._until_in_sync)

    def _metadata(self) -> Iterator[Figure]:
        seconds: list[float] = []
        with self._watched.survivors() as everybody:
            before_s = self._brokers_cpu_s()
            for _ in range(_METADATA_ROUNDS):
                started_s = time.monotonic()
                size = everybody.metadata_size()
                seconds.append(time.monotonic() - started_s)
            cpu_s = (self._brokers_cpu_s() - before_s) / _METADATA_ROUNDS
        what = "metadata of all topics"
        yield Figure(what=what, seconds=rounded(median(seconds)), brokers_cpu_s=rounded(cpu_s))
        yield Figure(what=what, amount=size, unit="bytes")

    def _memory(self, before_mib: float, when: str = "") -> Figure:
        grown_mib = self._resident_mib() - before_mib
        what = f"memory of a broker{when}, above {before_mib:.0f} MiB of an empty one"
        return Figure(what=what, amount=rounded(grown_mib), unit="MiB")

    def _descriptors(self) -> Figure:
        pid = self._processes(None)["1"]
        count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return Figure(what="descriptors open in a broker", amount=count, unit="files and sockets")

    # -- observations ------------------------------------------------------------------------------

    def _until_writable(self, but: int | None = None) -> None:
        for topic in self._topics:
            self._watched.until_writable(topic, but)

    def _until_in_sync(self) -> None:
        for topic, count in self._topics.items():
            self._watched.until_led(topic, count, lambda row: len(row.isr) == len(_BROKERS))

    def _processes(self, but: int | None) -> dict[str, int]:
        """Return the process ids of the brokers that run, and of ZooKeeper, by name."""
        state = self._cluster.state
        found = {str(each.id): each.pid for each in state.brokers if each.id != but}
        found["zookeeper"] = state.zookeeper_pid
        return {name: pid for name, pid in found.items() if pid is not None}

    def _brokers_cpu_s(self) -> float:
        return seconds_of([pid for name, pid in self._processes(None).items() if name.isdigit()])

    def _resident_mib(self) -> float:
        """Return the mean resident memory of the brokers."""
        sizes = [
            int(line.split()[1]) / 1024
            for name, pid in self._processes(None).items()
            if name.isdigit()
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        return sum(sizes) / len(sizes)
