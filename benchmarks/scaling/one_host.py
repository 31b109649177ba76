"""The same load on different numbers of brokers that share a host."""

import contextlib
import functools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.processor_time import check_proc, seconds_of
from benchmarks.support import wire_load
from benchmarks.support.brokers import HOST, free_ports, running_brokers
from benchmarks.support.rounds import Figure, Goal, judged, plain_spread, ratios_of, rounded
from benchmarks.support.wire_frames import ProduceFrames, produce_frames
from benchmarks.support.wire_load import Endpoint, Worker
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

GOAL = Goal(most=1.1)
GOAL_BROKERS = 8
PARTITIONS_PER_BROKER = 8
"""Each with a connection. A topic each, since prepared requests name partition 0."""
THREE = 3

_BATCH_BYTES = 128 * 1024
_FETCH_BYTES = 1 << 20
_RING = 4
_IN_FLIGHT = 4
_FETCHES_IN_FLIGHT = 2
_ALL = -1
_PATIENCE_S = 60.0
_POLL_S = 0.1
_SETTINGS = {
    "log.segment.delete.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "zookeeper.session.timeout.ms": "30000",
}
"""Files go at once, not in a later round."""


class _Spent(NamedTuple):
    """Processor seconds of all brokers for each GB, and how often their threads slept for it."""

    written: float
    read: float
    sleeps: float

    @property
    def both(self) -> float:
        return self.written + self.read


class _Side(NamedTuple):
    """The brokers of one size, with a replication factor."""

    host: "_Host"
    replicas: int
    at_once: int
    """The number of brokers that get their load at the same time; the others have none."""

    @property
    def name(self) -> str:
        count = len(self.host.pids)
        brokers = "1 broker" if count == 1 else f"{count} brokers"
        turns = "" if self.at_once == count else ", one after the other"
        return f"{brokers}, replication factor {self.replicas}{turns}"


class _Host(NamedTuple):
    """Brokers beside one another."""

    folder: Path
    ports: list[int]
    pids: list[int]

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)


def measure(folder: Path, sizes: Sequence[int], size: int, rounds: int) -> Iterator[Figure]:
    """Yield the figures of all sizes. `size`: the bytes that a broker gets in a round."""
    check_proc()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Worker())
        hosts = [stack.enter_context(_host(folder / f"of-{count}", count)) for count in sizes]
        sides = [_Side(host, 1, len(host.pids)) for host in hosts]
        if len(hosts[-1].pids) > 1:
            sides.append(_Side(hosts[-1], 1, 1))
        sides += [_Side(host, THREE, len(host.pids)) for host in hosts if len(host.pids) >= THREE]
        spent: dict[str, list[_Spent]] = {side.name: [] for side in sides}
        for number in range(rounds + 1):
            # Each is first in some rounds, as other work on the machine comes and goes.
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                one = _round(client, side, size)
                report_line(f"round {number} of {rounds}, {side.name}: {one.both:.2f} s/GB")
                if number:
                    spent[side.name].append(one)
    for replicas in (1, THREE):
        alike = [side for side in sides if side.replicas == replicas]
        for side in alike:
            yield from _figures(side, spent[side.name], spent[alike[0].name])


@contextlib.contextmanager
def _host(folder: Path, count: int) -> Iterator[_Host]:
    ports = free_ports(count)
    settings = [
        {**_SETTINGS, "listeners": f"PLAINTEXT://{HOST}:{port}", "broker.host.name": f"host-{n}"}
        for n, port in enumerate(ports)
    ]
    servers = ",".join(f"{HOST}:{port}" for port in ports)
    with running_brokers(folder, f"a host of {count} brokers", servers, settings) as pids:
        cores = sorted(os.sched_getaffinity(0))
        for number, pid in enumerate(pids):
            _pin(pid, cores[number % len(cores)])
        report_line(f"{count} brokers share this host")
        yield _Host(folder, ports, pids)


def _pin(pid: int, core: int) -> None:
    """Let all threads of a process run on one core; those that start later inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})


@functools.cache
def _frames(topic: str) -> ProduceFrames:
    return produce_frames(topic, _BATCH_BYTES, _RING, seed=1, acks=_ALL)


def _round(client: Worker, side: _Side, size: int) -> _Spent:
    host = side.host
    brokers = len(host.ports)
    partitions = PARTITIONS_PER_BROKER * brokers
    topics = [f"load-{number}" for number in range(partitions)]
    answers = max(1, size // PARTITIONS_PER_BROKER // _FETCH_BYTES)
    batches = answers * (_FETCH_BYTES // _BATCH_BYTES)
    moved_gb = partitions * answers * _FETCH_BYTES / 1e9
    client.run(wire_load.touch_memory, host.folder, partitions * answers * _FETCH_BYTES)
    written = read = 0.0
    slept = 0
    with _topics(host, topics, side.replicas):
        for first in range(0, brokers, side.at_once):
            led = [n for n in range(partitions) if first <= n % brokers < first + side.at_once]
            endpoints = [Endpoint(host.ports[number % brokers]) for number in led]
            frames = [_frames(topics[number]) for number in led]
            targets = list(zip(endpoints, frames, strict=True))
            _until_writable(client, targets)
            slept -= _sleeps(host.pids)
            written += _written(client, host, targets, batches)
            read_from = list(zip(endpoints, [topics[number] for number in led], strict=True))
            step = _FETCH_BYTES // _BATCH_BYTES * frames[0].records_per_batch
            read += _read(client, host, read_from, step, answers)
            slept += _sleeps(host.pids)
    return _Spent(written / moved_gb, read / moved_gb, slept / moved_gb)


def _sleeps(pids: Sequence[int]) -> int:
    """Return how often the threads of these processes have waited for something."""
    found = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = (thread / "status").read_text()
                found += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def _until_writable(client: Worker, targets: Sequence[tuple[Endpoint, ProduceFrames]]) -> None:
    """Write a batch to each topic. Metadata have leaders before all logs exist; a batch that is
    written again changes nothing, as all are equally large."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client.run(wire_load.produce_to, targets, 1, 1)
        except CommandError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)
        else:
            return


def _written(
    client: Worker, host: _Host, targets: Sequence[tuple[Endpoint, ProduceFrames]], batches: int
) -> float:
    before_s = seconds_of(host.pids)
    client.run(wire_load.produce_to, targets, _IN_FLIGHT, batches)
    return seconds_of(host.pids) - before_s


def _read(
    client: Worker, host: _Host, targets: Sequence[tuple[Endpoint, str]], step: int, answers: int
) -> float:
    before_s = seconds_of(host.pids)
    load = targets, _FETCH_BYTES, step, answers, _FETCHES_IN_FLIGHT
    client.run(wire_load.fetch_from, *load)
    return seconds_of(host.pids) - before_s


@contextlib.contextmanager
def _topics(host: _Host, topics: Sequence[str], replicas: int) -> Iterator[None]:
    """Have empty topics whose leaders are the brokers in turn, and no files of them afterwards."""
    brokers = len(host.ports)
    with Cluster(host.servers) as cluster:
        for number, topic in enumerate(topics):
            chosen = [1 + (number + each) % brokers for each in range(replicas)]
            create_topic(cluster, topic, assignment={0: chosen})
        yield
        delete_topics(cluster, list(topics))
    deadline_s = time.monotonic() + _PATIENCE_S
    while any(host.folder.glob("data-*/load-*")):
        if time.monotonic() > deadline_s:
            raise CommandError(f"the files of the topics are still there after {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)


def _figures(side: _Side, spent: Sequence[_Spent], least: Sequence[_Spent]) -> Iterator[Figure]:
    both = [each.both for each in spent]
    beside = [each.both for each in least]
    ratios = ratios_of(both, beside)
    ratio = rounded(statistics.median(ratios))
    brokers = len(side.host.pids)
    is_goal = brokers == side.at_once == GOAL_BROKERS and side.replicas == 1
    yield Figure(
        what=f"{side.name}: processor s/GB written and read; limit: the fewest brokers",
        measured=rounded(statistics.median(both)),
        limit=rounded(statistics.median(beside)),
        ratio=ratio,
        spread=plain_spread(ratios),
        **judged(GOAL if is_goal else None, ratio),
    )
    for name, values in (
        ("processor s/GB written", [each.written for each in spent]),
        ("processor s/GB read", [each.read for each in spent]),
        ("waits of the brokers' threads for each GB", [each.sleeps for each in spent]),
    ):
        yield Figure(
            what=f"{side.name}: {name}",
            measured=rounded(statistics.median(values)),
            spread=plain_spread(values),
        )
    yield Figure(
        what=f"{side.name}: GB/s written and read, computed for a core each",
        measured=rounded(brokers / statistics.median(both)),
    )
