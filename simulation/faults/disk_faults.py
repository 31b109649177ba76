"""Carries out the faults of log dirs: replicas that move between them all the time,
directories that fail and return, syncs that fail as Linux fails them; and what changes where a log
begins, and what time it is.
"""

import random
from collections.abc import Callable, Generator
from pathlib import Path

from simulation.faults.faults import Fault, FaultKind
from simulation.shared import Run
from simulation.world.broker import SimulatedBroker
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import alter_replica_log_dirs, delete_records

AGAIN_MS = 200
"""How long a restart is put off that is impossible now."""
STEPS_MS = (5_000, 600_000, 3_600_000)
"""The steps by which wall clocks are set, forward or back."""
STAYS = 0.1
"""The share of moves to the directory in which the replica is."""
DELETED = TopicPartition("d", 0)
"""The partition whose records are deleted, by requests and by retention."""

Course = Generator[None, None, None]
"""A fault: its beginning, and after a `yield` its end."""


class DiskFaults:
    """The faults of log dirs in one run."""

    def __init__(
        self,
        run: Run,
        restart: Callable[[SimulatedBroker], None],
        later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._cluster = run.cluster
        self._trace = run.trace
        self._restart = restart
        self._later = later
        self.ways: dict[FaultKind, Callable[[Fault, SimulatedBroker], Course]] = {
            FaultKind.MOVE_LOG: self._move,
            FaultKind.BROKEN_LOG_DIR: self._break,
            FaultKind.FAILED_SYNCS: self._fail_syncs,
            FaultKind.DELETE_RECORDS: self._delete_records,
            FaultKind.CLOCK_STEP: self._set_clock,
        }

    def heal(self) -> None:
        """Have all directories work; a broker that has lost one is to be restarted."""
        for broker in self._cluster.brokers:
            disk = _disk_of(broker)
            disk.broken.clear()
            disk.broken_syncs.clear()
            if broker.up and broker.logs.dirs.unusable_count:
                broker.kill(session_ends_at_once=True)

    def _move(self, fault: Fault, broker: SimulatedBroker) -> Course:
        choose = random.Random(fault.seed)
        logs = broker.logs.logs
        if not logs:
            return
        tp = choose.choice(sorted(logs))
        here = logs[tp].directory.parent
        others = [path for path in broker.config.log_dirs if path != here]
        path = here if choose.random() < STAYS else choose.choice(others)
        self._trace.note(f"broker {broker.id} is to move {tp} to {path.name}")
        self._cluster.ask(broker.id, alter_replica_log_dirs.API, 1, _move_request(path, tp))
        yield

    def _break(self, fault: Fault, broker: SimulatedBroker) -> Course:
        if self._one_fails():
            return
        choose = random.Random(fault.seed)
        log_dir = choose.choice(list(broker.config.log_dirs))
        disk = _disk_of(broker)
        disk.broken.add(log_dir)
        self._trace.note(f"{log_dir.name} of broker {broker.id} fails")
        if choose.random() < 0.5:
            life = broker.life

            def restart_without() -> None:
                if broker.life == life and log_dir in disk.broken:
                    self._restart_when_it_runs(broker)

            self._later(choose.randint(1, max(1, fault.for_ms)), restart_without)
        yield
        disk.broken.discard(log_dir)
        self._restart_when_it_runs(broker)

    def _fail_syncs(self, fault: Fault, broker: SimulatedBroker) -> Course:
        if self._one_fails():
            return
        log_dir = random.Random(fault.seed).choice(list(broker.config.log_dirs))
        disk = _disk_of(broker)
        disk.broken_syncs.add(log_dir)
        self._trace.note(f"syncs in {log_dir.name} of broker {broker.id} fail")
        yield
        disk.broken_syncs.discard(log_dir)
        self._restart_when_it_runs(broker)

    def _one_fails(self) -> bool:
        """Return True when a directory of some broker fails: a broker without any can't start."""
        disks = map(_disk_of, self._cluster.brokers)
        return any(disk.broken or disk.broken_syncs for disk in disks)

    def _restart_when_it_runs(self, broker: SimulatedBroker) -> None:
        """Restart it; one that is down sees the directory when it starts."""
        if broker.up and broker.loop.paused:
            self._later(AGAIN_MS, lambda: self._restart_when_it_runs(broker))
        elif broker.up:
            self._restart(broker)

    def _delete_records(self, fault: Fault, _broker: SimulatedBroker) -> Course:
        for broker in self._cluster.brokers:
            partition = broker.replicas.get(DELETED) if broker.serving else None
            if partition is not None and partition.leader is not None:
                choose = random.Random(fault.seed)
                start, end = partition.log.log_start_offset, partition.high_watermark
                offset = choose.choice((-1, end, choose.randint(min(start, end), end)))
                self._trace.note(f"{DELETED} is to begin at {offset}")
                self._cluster.ask(broker.id, delete_records.API, 2, _deletion(DELETED, offset))
                yield
                return

    def _set_clock(self, fault: Fault, broker: SimulatedBroker) -> Course:
        """Set the clock of the broker's machine, as long as this process lives."""
        choose = random.Random(fault.seed)
        step_ms = choose.choice(STEPS_MS) * choose.choice((-1, 1))
        wall_ms = broker.loop.wall_ms
        broker.loop.wall_ms = _disk_of(broker).wall_ms = lambda: wall_ms() + step_ms
        self._trace.note(f"the wall clock of broker {broker.id} is set by {step_ms} ms")
        yield


def _disk_of(broker: SimulatedBroker) -> SimulatedDisk:
    assert isinstance(broker.disk, SimulatedDisk)
    return broker.disk


def _move_request(
    path: Path, tp: TopicPartition
) -> alter_replica_log_dirs.AlterReplicaLogDirsRequest:
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest
    log_dir = request.AlterReplicaLogDir
    topic = log_dir.AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])
    return request(dirs=[log_dir(path=str(path), topics=[topic])])


def _deletion(tp: TopicPartition, offset: int) -> delete_records.DeleteRecordsRequest:
    topic = delete_records.DeleteRecordsRequest.DeleteRecordsTopic
    row = topic.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
    return delete_records.DeleteRecordsRequest(
        topics=[topic(name=tp.topic, partitions=[row])], timeout_ms=5_000
    )
