"""The process runs out of descriptors at any call of a log that takes one: the action is refused or
done, the log is whole, and everything works once descriptors are back (R-LOG8)."""

import errno
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import LogDirError, LogShortageError, StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log.cleaning.compaction_job import CompactionJob
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import storage_error
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.partition_log import PartitionLog
from storage_engine.tests.log import compaction_support
from storage_engine.tests.log.support import (
    SMALL,
    TP,
    ManualClock,
    append,
    fill,
    make_batch,
    new_log_manager,
    offsets_of,
    open_log,
    read_all,
    run_search,
)
from storage_engine.tests.log.transaction_support import encoded, next_sequence, transactional
from storage_engine.tests.sampling import by_turns

ROOT = Path("/data")
EVER = 1 << 40
END_OFFSET = 63
"""The end of a log that is `prepared`."""

Action = Callable[[PartitionLog], Any]


class World:
    """A log on a simulated disk, as it was opened after a stop in order: all its files are
    closed."""

    def __init__(self, config=SMALL, *, prepare: Action) -> None:
        self.disk = SimulatedDisk(ROOT)
        self.clock = ManualClock()
        self.config = config
        made = self.open()
        prepare(made)
        made.flush()
        made.close()
        self.log = self.open(clean=True, recovery_point=made.recovery_point)

    def open(self, **options) -> PartitionLog:
        return open_log(
            ROOT, self.config, disk=self.disk, clock=self.clock, pool=OpenFiles(2), **options
        )

    def make_good(self) -> None:
        """The work that a broker does each second."""
        if self.log.is_cut_short:
            self.log.open_again()

    def content(self) -> tuple:
        log = self.log
        return (
            log.log_start_offset,
            log.log_end_offset,
            read_all(log),
            log.leader_epochs.entries,
            sorted(entry.producer_id for entry in log.producer_state),
            log.reads.aborted_transactions(log.log_start_offset, log.log_end_offset),
        )


def after_shortages(
    make: Callable[[], World], action: Action, *, lasts: int
) -> Iterator[tuple[int, World]]:
    """Worlds in which `action` has met a shortage, with the number of its calls before that: at its
    first call that takes a descriptor, then at its second, and so on. In the last it met none."""
    for calls in itertools.count():
        world = make()
        first = world.disk.opens + 1 + calls
        world.disk.short_at = range(first, first + lasts)
        for _ in range(50):
            try:
                world.make_good()
                action(world.log)
                break
            except LogShortageError:
                if lasts == EVER:
                    world.disk.short_at = range(0)
        else:
            raise AssertionError("it never worked again")
        is_over = world.disk.opens < first
        world.disk.short_at = range(0)
        yield calls, world
        if is_over:
            return


def run_into_a_shortage(make: Callable[[], World], action: Action, *, lasts: int) -> int:
    """After any shortage all is as `action` leaves it without one; returns the number of its
    calls."""
    expected = make()
    action(expected.log)
    wanted = expected.content()
    for calls, world in after_shortages(make, action, lasts=lasts):
        assert world.content() == wanted, f"short at call {calls}"
        # It takes records, also after the process is killed.
        append(world.log, epoch=9)
        end_offset, content = world.log.log_end_offset, read_all(world.log)
        world.log.flush()
        log_start, recovery_point = world.log.log_start_offset, world.log.recovery_point
        world.disk.kill_process()
        again = world.open(
            log_start_offset=log_start,
            recovery_point=recovery_point,
            first_dirty_offset=world.log.cleaning.first_dirty_offset,
        )
        assert (again.log_end_offset, read_all(again)) == (end_offset, content)
    return calls


def prepared(log: PartitionLog) -> None:
    """Epochs, several segments, an aborted transaction and an open one."""
    for epoch in range(3):
        fill(log, 8, epoch=epoch)
    log.leader_appends.append(_of_producer(log, 7), leader_epoch=2, now_ms=5000)
    log.leader_appends.append_marker(7, 0, TransactionMarker(False, 0), leader_epoch=2, now_ms=5000)
    fill(log, 8, epoch=2)
    log.leader_appends.append(_of_producer(log, 8), leader_epoch=2, now_ms=5000)


def _of_producer(log: PartitionLog, producer: int) -> memoryview:
    records = [(b"key", b"value")]
    return transactional(encoded(records, (producer, 0, next_sequence(log, producer))))


def append_one(log: PartitionLog) -> None:
    # As a producer that sends again what was refused.
    producer_state = log.producer_state.get(5)
    if producer_state is None or not producer_state.batches:
        append(log, payload=bytes(900), producer=(5, 0, 0), epoch=2)


def roll(log: PartitionLog) -> None:
    for sequence in range(4):
        log.leader_appends.append(
            make_batch(payload=bytes(900), producer=(5, 0, sequence)), leader_epoch=2, now_ms=5000
        )


def roll_and_flush(log: PartitionLog) -> None:
    roll(log)
    log.flush()


def abort(log: PartitionLog) -> None:
    if 8 in log.producer_state.transactions.ongoing:
        log.leader_appends.append_marker(
            8, 0, TransactionMarker(False, 0), leader_epoch=2, now_ms=5000
        )


def follow(log: PartitionLog) -> None:
    if log.log_end_offset == END_OFFSET:
        log.follower_appends.append(
            make_batch(payload=bytes(1900), base_offset=END_OFFSET, epoch=5)
        )


def delete_old(log: PartitionLog) -> None:
    log.retention.delete_old_segments(1000 + 30 + SMALL.retention_ms, log.log_end_offset)


def delete_all(log: PartitionLog) -> None:
    log.retention.delete_old_segments(10**15, log.log_end_offset)


def delete_records(log: PartitionLog) -> None:
    # The answer waits for nothing but the write of the start; files may go later.
    log.retention.advance_log_start(30)
    log.retention.delete_old_segments(0, log.log_end_offset)


ACTIONS: dict[str, Action] = {
    "append": append_one,
    "roll": roll,
    "marker of an aborted transaction": abort,
    "append of a follower": follow,
    "truncation to the end": lambda log: log.truncation.truncate_to(log.log_end_offset),
    "truncation within the newest segment": lambda log: log.truncation.truncate_to(58),
    "truncation of many segments": lambda log: log.truncation.truncate_to(11),
    "truncation of everything": lambda log: log.truncation.truncate_fully_and_start_at(100),
    "truncation of everything, to before": lambda log: log.truncation.truncate_fully_and_start_at(
        0
    ),
    "retention": delete_old,
    "retention of everything": delete_all,
    "DeleteRecords": delete_records,
    "flush": roll_and_flush,
    "read": lambda log: offsets_of(read_all(log)),
    "lookup by time": lambda log: run_search(log.reads.search_timestamp(1030)),
    "lookup of the largest time": lambda log: run_search(log.reads.search_largest_timestamp()),
    "aborted transactions": lambda log: log.reads.aborted_transactions(0, log.log_end_offset),
    "a check of the indexes": lambda log: log.segments.first.repair_indexes(),
    "a new leader": lambda log: log.leader_appends.start_epoch(4),
}


@pytest.mark.parametrize(("name", "lasts"), by_turns(ACTIONS, (1, EVER)))
def test_a_shortage_at_any_call_leaves_a_whole_log(name, lasts):
    def action(log: PartitionLog) -> None:
        try:
            ACTIONS[name](log)
        except OSError as error:
            # Of work that is called without the log around it.
            raise storage_error("work on", log.directory, error) from error

    run_into_a_shortage(lambda: World(prepare=prepared), action, lasts=lasts)


def compact(log: PartitionLog) -> None:
    """A pass, led as the broker does it."""
    for _ in range(50):
        plan = log.compaction.plan(10_000, log.log_end_offset)
        if plan is None:
            return
        job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=10_000)
        _lead(log, job)
    raise AssertionError("it was never compacted")


def _lead(log: PartitionLog, job: CompactionJob) -> None:
    goes_on = True
    while goes_on:
        try:
            job.work()
        except OSError as error:
            assert error.errno == errno.EMFILE
            # It fails for as long as there are no descriptors, and then goes on.
            assert isinstance(log.disk, SimulatedDisk)
            log.disk.short_at = range(0)
            if log.cleaning.goes_on_later(job, error):
                continue
            assert log.cleaning.failed(job, error) is None
            return
        goes_on = log.cleaning.advance(job)


def cut_while_compacting(log: PartitionLog) -> None:
    """The pass has renamed its segment when the log is cut: that ends the pass first."""
    end = log.log_end_offset
    plan = log.compaction.plan(10_000, end)
    if plan is not None and not log.cleaning.is_busy:
        job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=10_000)
        while not job.is_half_done:
            try:
                job.work()
            except OSError as error:
                assert log.cleaning.failed(job, error) is None
                break
            log.cleaning.advance(job)
    log.truncation.truncate_to(38)


@pytest.mark.parametrize(("action", "lasts"), by_turns((compact, cut_while_compacting), (1, EVER)))
def test_a_shortage_at_any_call_of_a_pass_loses_no_key(action, lasts):
    def make() -> World:
        return World(
            compaction_support.CONFIG,
            prepare=lambda log: compaction_support.fill_keys(log, 5, 9),
        )

    def values(log: PartitionLog) -> dict:
        return {row.key: row.value for row in compaction_support.rows(log) if row.key is not None}

    expected = make().log
    whole = values(expected)
    for calls, world in after_shortages(make, action, lasts=lasts):
        if action is compact:
            assert values(world.log) == whole, f"short at call {calls}"
            assert world.log.size_in_bytes < expected.size_in_bytes
        kept, end_offset = values(world.log), world.log.log_end_offset
        world.log.flush()
        world.disk.kill_process()
        again = world.open(
            recovery_point=world.log.recovery_point,
            first_dirty_offset=world.log.cleaning.first_dirty_offset,
        )
        assert (values(again), again.log_end_offset) == (kept, end_offset)
    assert calls > 10


# -- all logs of a broker


def managed(disk: SimulatedDisk) -> LogManager:
    return new_log_manager(
        [ROOT / "one", ROOT / "two"], SMALL, broker_id=1, clock=ManualClock(), disk=disk
    )


def started(disk: SimulatedDisk) -> LogManager:
    logs = managed(disk)
    logs.load("cluster")
    return logs


def test_a_shortage_at_any_call_of_a_start_leaves_no_log_dir_out():
    """A broker that began without a folder would lead empty logs; one that can't start says why."""
    disk = SimulatedDisk(ROOT)
    logs = started(disk)
    for partition in range(4):
        fill(logs.get_or_create(TopicPartition("t", partition)), 5)
    disk.kill_process()
    calls = 0
    while True:
        first = disk.opens + 1 + calls
        disk.short_at = range(first, EVER)
        try:
            managed(disk).load("cluster")
        except StorageError as error:
            assert "Too many open files" in str(error)
            assert "ulimit" in str(error) or "log dir" in str(error)
        is_over = disk.opens < first
        disk.short_at = range(0)
        if is_over:
            break
        disk.kill_process()
        again = started(disk)
        assert len(again.dirs.working_paths) == 2
        assert [log.log_end_offset for log in again.logs.values()] == [9] * 4
        disk.kill_process()
        calls += 1
    assert calls > 10


CHECKPOINTS = {
    "high watermarks": lambda logs: logs.checkpoint_high_watermarks({TP: 3}),
    "recovery points": LogManager.write_recovery_points,
    "log starts": LogManager.write_log_starts,
    "cleaner offsets": LogManager.write_cleaner_offsets,
    "scrub times": LogManager.write_scrub_times,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_lacks_descriptors_fails_no_log_dir(name):
    disk = SimulatedDisk(ROOT)
    logs = started(disk)
    fill(logs.get_or_create(TP), 5)
    failed = []
    logs.dirs.on_failed = lambda path, error: failed.append((path, error))
    for call in range(4):
        disk.short_at = range(disk.opens + 1 + call, EVER)
        CHECKPOINTS[name](logs)
        disk.short_at = range(0)
        CHECKPOINTS[name](logs)
    assert not failed
    disk.error = errno.EIO
    disk.broken = {ROOT / "one"}
    CHECKPOINTS[name](logs)
    assert [path for path, _ in failed] == [ROOT / "one"], "a disk that fails is told all the same"


def test_a_partition_is_made_and_deleted_once_descriptors_are_back():
    topic_id = UUID(int=5)
    calls = 0
    while True:
        disk = SimulatedDisk(ROOT)
        logs = started(disk)
        first = disk.opens + 1 + calls
        disk.short_at = range(first, EVER)
        for work in (
            lambda logs=logs: logs.get_or_create(TP, topic_id=topic_id),
            lambda logs=logs: logs.delete(TP),
        ):
            for _ in range(2):
                try:
                    work()
                    break
                except LogShortageError:
                    disk.short_at = range(0)
        is_over = disk.opens < first
        disk.short_at = range(0)
        logs.retry_removals()
        assert logs.get(TP) is None
        assert not [n for f in ("one", "two") for n in disk.list_names(ROOT / f) if "topic" in n]
        made = logs.get_or_create(TP, topic_id=topic_id)
        append(made)
        assert len(logs.dirs.working_paths) == 2
        if is_over:
            break
        calls += 1
    assert calls > 3


def test_a_failed_sync_is_the_log_dirs_failure_even_for_want_of_memory(monkeypatch):
    """The pages may count as clean, so that a second sync would only seem to go well."""
    world = World(prepare=prepared)
    append(world.log, epoch=2)
    job = world.log.flush_state.prepare()

    def sync(descriptor: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(world.disk, "sync", sync)
    with pytest.raises(LogDirError):
        world.log.flush_state.run(job)
