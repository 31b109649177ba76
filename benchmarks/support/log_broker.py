"""The costs of the log in a broker: opening many partitions, memory, and shared fsyncs.

The broker is a real one, in a process of its own, over real sockets; its own figures are read from
/proc and from its log file.
"""

import argparse
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.support.log_batches import sealed_batch, sealed_batches
from benchmarks.support.rounds import Goal, Result, alone, beside, seconds
from storage_engine.client.addresses import parse_addresses
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis.fetch import BY_NAME as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest, ProduceResponse
from storage_engine.protocol.apis.spec import ApiSpec, Req
from storage_engine.tools.commands.broker import raise_descriptor_limit
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

_Answer = TypeVar("_Answer", ProduceResponse, FetchResponse)

OPEN_GOAL_S = Goal(most=5.0)
MEMORY_GOAL_MIB = Goal(most=150.0)
IDLE_GOAL_MIB = Goal(most=30.0)
SHARED_GOAL = Goal(least=8.0)
"""The project's own goals, for 1,000 partitions, 1,000 connections and 16 producers."""

IN_FLIGHT = 5
"""The unanswered requests of one producer, as many as an idempotent client has."""

_IDLE_CONNECTIONS = 1_000
_OTHER_DESCRIPTORS = 100
"""The descriptors of this process beside the connections."""

_TOPIC = "bench"
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TIMEOUT_MS = 60_000
_LARGE_BATCH_BYTES = 128 << 10
_SMALL_BATCH_BYTES = 1 << 10
_FETCH_BYTES = 1 << 20

_OPEN_LOGS = """
import json, sys, time
from pathlib import Path
from typing import TypeVar
from storage_engine.log.log_config import LogConfig
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.net.event_loop_ports import SystemClock
started, worked = time.perf_counter(), time.process_time()
settings = LogManagerSettings(
    log_dirs=[Path(sys.argv[1])], broker_id=1, default_config=LogConfig()
)
logs = LogManager(settings, clock=SystemClock())
logs.load()
taken, worked = time.perf_counter() - started, time.process_time() - worked
print(taken, worked, len(logs.logs), Path("/proc/self/status").read_text())
logs.close()
"""


def measure(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Yield one result after the other."""
    yield from _many_partitions(folder / "many", args.partitions, args.large_log)
    for partitions in (1, args.producers):
        yield from _shared_flushes(folder, args, partitions)


# -- many partitions -------------------------------------------------------------------------------


def _many_partitions(folder: Path, partitions: int, moved: int) -> Iterator[Result]:
    what = f"{partitions} partitions closed in order"
    with LocalCluster.running(folder, UpRequest(brokers=1, port=0)) as cluster:
        with Cluster(cluster.bootstrap_servers) as client:
            create_topic(client, _TOPIC, partitions, 1)
            # Metadata have leaders before all the logs exist; these requests read the logs.
            client.list_offsets({TopicPartition(_TOPIC, p): LATEST for p in range(partitions)})
        cluster.stop_broker(1)
        taken, worked, status = _open_logs(folder / "broker-1" / "data", partitions)
        yield alone(f"{what}: opened by the log alone, s", taken, goal=OPEN_GOAL_S)
        yield alone(f"{what}: processor time of that, s", worked)
        yield alone(f"{what}: RSS of that process, MiB", _mib(status, "VmRSS"))
        started = seconds(lambda: cluster.start_broker(1))
        yield alone(f"{what}: broker serves again, s", started, goal=OPEN_GOAL_S)
        _move(cluster, _FETCH_BYTES)
        yield alone(
            f"{what}: RSS of the idle broker, MiB", _memory(cluster, "VmRSS"), goal=MEMORY_GOAL_MIB
        )
        before = _memory(cluster, "RssAnon")
        yield alone("idle broker: RssAnon, MiB", before)
        count = min(_IDLE_CONNECTIONS, raise_descriptor_limit() - _OTHER_DESCRIPTORS)
        connections = _several(cluster, count)
        idle_mib = _memory(cluster, "RssAnon") - before
        for connection in connections:
            connection.close()
        yield alone(f"idle broker: {count} idle connections, MiB", idle_mib, goal=IDLE_GOAL_MIB)
        _move(cluster, moved // 4)
        quarter = _memory(cluster, "RssAnon")
        _move(cluster, moved - moved // 4)
        yield beside(
            f"broker after {moved >> 20} MiB in and out: RssAnon, MiB;"
            " limit: after a quarter of it",
            _memory(cluster, "RssAnon"),
            quarter,
        )
        yield alone("that broker: RSS with mapped files, MiB", _memory(cluster, "VmRSS"))


def _open_logs(folder: Path, partitions: int) -> tuple[float, float, str]:
    """Return seconds on the clock and of the processor, and the process's /proc status then."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _OPEN_LOGS, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if done.returncode:
        raise CommandError(f"the logs in '{folder}' do not open: {done.stderr.strip()[-200:]}")
    taken, worked, count, status = done.stdout.split(" ", 3)
    if int(count) != partitions:
        raise CommandError(f"{count} of {partitions} partitions are in '{folder}'")
    return float(taken), float(worked), status


def _memory(cluster: LocalCluster, name: str) -> float:
    pid = cluster.state.broker(1).pid
    return _mib(Path(f"/proc/{pid}/status").read_text(), name)


def _mib(status: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise CommandError(f"this system does not report {name} of a process")
    return int(found[1]) / 1024


def _move(cluster: LocalCluster, total: int) -> None:
    """Produce `total` bytes to one partition, and fetch them again."""
    connection = _connect(cluster)
    try:
        batches = sealed_batches(_LARGE_BATCH_BYTES, 4)
        offset = _first_offset(connection, _produce(0, batches[0], acks=1))
        for number in range(1, total // _LARGE_BATCH_BYTES):
            _exchange(connection, PRODUCE, _produce(0, batches[number % 4], acks=1))
        wanted = total // _LARGE_BATCH_BYTES * _LARGE_BATCH_BYTES
        per_fetch = _FETCH_BYTES // _LARGE_BATCH_BYTES
        records = (_LARGE_BATCH_BYTES // 100) * per_fetch
        while wanted > 0:
            partition = FetchPartition(_TOPIC, 0, offset, _FETCH_BYTES)
            request = FetchRequest(500, 1, _FETCH_BYTES, [partition])
            found = _exchange(connection, FETCH, request).partitions[0].records
            assert isinstance(found, memoryview)
            wanted -= len(found)
            offset += records
    finally:
        connection.close()


def _first_offset(connection: BrokerConnection, message: ProduceRequest) -> int:
    """Produce a batch as soon as the broker knows that it leads, and return its offset."""
    deadline = Deadline.after(_TIMEOUT_MS)
    while True:
        answer = connection.exchange(PRODUCE, message, deadline).partitions[0]
        if answer.error_code not in _NOT_YET:
            if answer.error_code:
                raise CommandError(f"a produce request got error {answer.error_code}")
            return int(answer.base_offset)
        deadline.check("the broker led its partitions")
        time.sleep(0.1)


# -- shared flushes --------------------------------------------------------------------------------


def _shared_flushes(scratch: Path, args: argparse.Namespace, partitions: int) -> Iterator[Result]:
    """Measure acknowledged batches per fsync, and their rate beside one fsync after the other."""
    folder = scratch / f"shared-{partitions}"
    settings = (("flush.before.ack", "true"), ("default.replication.factor", "1"))
    request = UpRequest(brokers=1, port=0, settings=settings)
    with LocalCluster.running(folder, request) as cluster:
        with Cluster(cluster.bootstrap_servers) as client:
            create_topic(client, _TOPIC, partitions, 1)
        acknowledged = _produce_durably(cluster, args, partitions)
        log_file = folder / cluster.state.broker(1).log_file
        cluster.stop_broker(1)
    batches, fsyncs, rounds = _counters(log_file)
    alone_per_s = _syncs_a_second(scratch / "synced")
    who = f"{args.producers} durable producers, {partitions} partition(s)"
    yield alone(f"{who}: batches per fsync call", batches / fsyncs, goal=SHARED_GOAL)
    yield alone(f"{who}: batches per round of fsyncs", batches / rounds, goal=SHARED_GOAL)
    yield beside(
        f"{who}: batches/s; limit: a write and an fsync each, one after the other",
        acknowledged / args.seconds,
        alone_per_s,
    )


def _produce_durably(cluster: LocalCluster, args: argparse.Namespace, partitions: int) -> int:
    """Keep IN_FLIGHT requests of every producer; return the number of acknowledged batches."""
    connections = {each.socket.fileno(): each for each in _several(cluster, args.producers)}
    batch = sealed_batch(_SMALL_BATCH_BYTES)
    messages = {
        fd: _produce(number % partitions, batch, acks=-1) for number, fd in enumerate(connections)
    }
    poll = select.poll()
    for fd, connection in connections.items():
        poll.register(fd, select.POLLIN)
        for _ in range(IN_FLIGHT):
            connection.send(PRODUCE, messages[fd], Deadline.after(_TIMEOUT_MS))
    acknowledged = 0
    end = Deadline.after(args.seconds * 1000)
    while not end.passed:
        for fd, _ in poll.poll(end.left_ms):
            connection = connections[fd]
            while (answer := connection.receive_nowait()) is not None:
                _check(answer)
                acknowledged += 1
                connection.send(PRODUCE, messages[fd], Deadline.after(_TIMEOUT_MS))
    for connection in connections.values():
        connection.close()
    return acknowledged


def _counters(log_file: Path) -> tuple[int, int, int]:
    found = re.findall(
        r"durable acknowledgements batches=(\d+) fsyncs=(\d+) rounds=(\d+)", log_file.read_text()
    )
    if not found:
        raise CommandError(f"'{log_file}' does not report durable acknowledgements")
    batches, fsyncs, rounds = map(int, found[-1])
    return batches, max(1, fsyncs), max(1, rounds)


def _syncs_a_second(path: Path) -> float:
    data = bytes(_SMALL_BATCH_BYTES)
    count = 200
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)

    def work() -> None:
        for _ in range(count):
            os.write(descriptor, data)
            os.fdatasync(descriptor)

    try:
        return count / seconds(work)
    finally:
        os.close(descriptor)
        path.unlink()


# -- requests --------------------------------------------------------------------------------------


def _several(cluster: LocalCluster, count: int) -> Sequence[BrokerConnection]:
    return [_connect(cluster) for _ in range(count)]


def _connect(cluster: LocalCluster) -> BrokerConnection:
    address = parse_addresses(cluster.bootstrap_servers)[0]
    return BrokerConnection.open(address, _TOPIC, Deadline.after(_TIMEOUT_MS), BufferPool())


def _produce(partition: int, batch: memoryview, *, acks: int) -> ProduceRequest:
    return ProduceRequest(None, acks, _TIMEOUT_MS, [ProducePartition(_TOPIC, partition, batch)])


def _exchange(connection: BrokerConnection, spec: ApiSpec[Req, _Answer], message: Req) -> _Answer:
    answer = connection.exchange(spec, message, Deadline.after(_TIMEOUT_MS))
    _check(answer)
    return answer


def _check(answer: ProduceResponse | FetchResponse) -> None:
    for partition in answer.partitions:
        if partition.error_code:
            tp = TopicPartition(_TOPIC, partition.partition)
            raise CommandError(f"{tp} answered with error {partition.error_code}")
