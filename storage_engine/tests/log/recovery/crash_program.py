"""A random life of a broker's logs on a disk that crashes, several times over; after each crash
everything is checked.

    python -m storage_engine.tests.log.recovery.crash_program SEED    tells each step of one
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.log.cleaning.compaction_job import CancelledError
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.log.recovery.crash_batches import SentBatch, StoredBatch, batch_of
from storage_engine.tests.log.recovery.crash_model import LogModel
from storage_engine.tests.log.support import ManualClock

if TYPE_CHECKING:
    from storage_engine.log.cleaning.compaction_job import CompactionJob

ROOT = Path("/data")
EVENTS, TABLE = TopicPartition("events", 0), TopicPartition("table", 0)
LIVES = 3
PRODUCERS = 3
CODE_OF_BATCH = 21
"""The log sets the bytes before it; see protocol.records.record_batch."""


class CrashProgram:
    """The lives of one seed."""

    def __init__(self, seed: int, tell: Callable[[str], None] = lambda line: None) -> None:
        self.choose = choose = random.Random(seed)
        self.tell = tell
        self.disk = SimulatedDisk(ROOT)
        self.clock = ManualClock()
        kinds = choose.choice(((EVENTS,), (EVENTS,), (TABLE,), (EVENTS, TABLE)))
        self.models = [LogModel(kind, compacts=kind is TABLE) for kind in kinds]
        self.configs = {
            kind.topic: LogConfig(
                segment_bytes=choose.choice((700, 1500, 4000)),
                index_interval_bytes=choose.choice((0, 100, 400)),
                segment_index_bytes=choose.choice((40, 400, 1 << 20)),
                file_delete_delay_ms=choose.choice((0, 100)),
                cleanup_policy="compact" if kind is TABLE else "delete",
                retention_ms=choose.choice((-1, 300)),
                retention_bytes=choose.choice((-1, 3000)),
                min_cleanable_dirty_ratio=0.0,
            )
            for kind in kinds
        }
        self.jobs: dict[TopicPartition, CompactionJob] = {}
        self.manager: LogManager | None = None
        self.floors: dict[TopicPartition, int] = {}
        """For each log, how far it must reach if only the process dies now."""
        self.is_cutting = False

    def run(self) -> None:
        for life in range(LIVES):
            self.tell(f"-- life {life}")
            self._open()
            self._live()
        self._open()
        self._close()
        self.disk.lose_power(self.choose)
        self._open()

    # -- crashes -----------------------------------------------------------------------------------

    def _live(self) -> None:
        disk, choose = self.disk, self.choose
        disk.crash_after = disk.changes + choose.randint(1, choose.choice((10, 60, 250)))
        try:
            for _ in range(choose.randint(5, 60)):
                model = choose.choice(self.models)
                self.floors = {each.topic_partition: each.end for each in self.models}
                self._act(model, self._log(model))
        except CrashError:
            self.tell("crashed")
        self._crash()

    def _open(self) -> None:
        """Opening may be cut short by a crash too."""
        while True:
            if self.choose.random() < 0.2:
                self.disk.crash_after = self.disk.changes + self.choose.randint(1, 30)
            manager = LogManager.__new__(LogManager)
            try:
                manager.__init__(  # type: ignore[misc]
                    LogManagerSettings(log_dirs=[ROOT], broker_id=1, default_config=LogConfig()),
                    clock=self.clock,
                    config_of=self.configs.__getitem__,
                    disk=self.disk,
                )
                manager.load("cluster")
            except CrashError:
                self.tell("crashed while opening")
                self._crash()
                continue
            self.disk.crash_after = None
            break
        self.manager = manager
        self.is_cutting = False
        self.jobs.clear()
        for model in self.models:
            floor = self.floors.get(model.topic_partition, 0)
            model.check(manager, self.disk, self.choose, floor=floor)
            self.tell(f"opened {model.topic_partition} {self._facts(model)}")

    def _crash(self) -> None:
        self.manager = None
        if self.choose.random() < 0.2:
            self.tell("process killed")
            self.disk.kill_process()
            return
        self.floors = {model.topic_partition: model.durable_end for model in self.models}
        self.disk.lose_power(self.choose if self.choose.random() < 0.95 else None)
        self.tell(f"power lost {self.floors}")

    def _log(self, model: LogModel) -> PartitionLog:
        assert self.manager is not None
        return self.manager.logs[model.topic_partition]

    def _facts(self, model: LogModel) -> str:
        log = self._log(model)
        return (
            f"[{log.log_start_offset}, {log.log_end_offset}) recovery_point={log.recovery_point}"
            f" segments={log.segment_count} epoch={log.latest_epoch} floor={model.durable_end}"
        )

    # -- actions -----------------------------------------------------------------------------------

    def _act(self, model: LogModel, log: PartitionLog) -> None:
        (action,) = self.choose.choices(list(_ACTIONS), list(_ACTIONS.values()))
        self.tell(f"{model.topic_partition}: {action.__name__[1:]}")
        try:
            action(self, model, log)
        except CrashError:
            if self.manager is not None and not self.is_cutting:
                model.recovery_point_is(log.recovery_point)
            raise
        if self.manager is not None:
            model.flushed(self._log(model))
            self.tell(f"    {self._facts(model)}")

    def _append(self, model: LogModel, log: PartitionLog) -> None:
        for _ in range(self.choose.randint(1, 4)):
            self._append_one(model, log)

    def _append_one(self, model: LogModel, log: PartitionLog) -> None:
        choose = self.choose
        epoch = model.latest_epoch = max(model.latest_epoch, log.latest_epoch)
        batch = batch_of(
            choose,
            timestamp_ms=self.clock.now_ms + choose.randint(-200, 200),
            producer=self._producer(log),
            base_offset=model.end,
            epoch=epoch,
        )
        stored = self._stored(model, batch)
        try:
            if choose.random() < 0.5:
                log.leader_appends.append(batch.data, leader_epoch=epoch, now_ms=self.clock.now_ms)
            else:
                log.follower_appends.append(batch.data)
        except CrashError:
            model.may_be_appended(stored)
            raise
        model.appended(stored)

    def _stored(self, model: LogModel, batch: SentBatch) -> StoredBatch:
        data = bytes(batch.data)
        model.times[data[CODE_OF_BATCH:]] = batch.timestamps_ms
        return StoredBatch(read_header(data), data)

    def _producer(self, log: PartitionLog) -> tuple[int, int, int]:
        if self.choose.random() < 0.3:
            return -1, -1, -1
        producer_id = self.choose.randrange(PRODUCERS)
        entry = log.producer_state.get(producer_id)
        if entry is None:
            return producer_id, 0, 0
        if not entry.batches or self.choose.random() < 0.05:
            return producer_id, entry.epoch + 1, 0
        return producer_id, entry.epoch, entry.batches[-1].last_sequence + 1

    def _flush(self, model: LogModel, log: PartitionLog) -> None:
        log.flush()

    def _flush_a_part(self, model: LogModel, log: PartitionLog) -> None:
        """Prepared now, done after something else."""
        job = log.flush_state.prepare()
        if self.choose.random() < 0.5:
            self._append(model, log)
        elif self.choose.random() < 0.5:
            self._truncate(model, log)
        job.run()
        job.finish()

    def _truncate(self, model: LogModel, log: PartitionLog) -> None:
        lowest = max(model.high_watermark, log.log_start_offset)
        offset = self.choose.randint(min(lowest, model.end), model.end)
        self._cut(model, log, offset, lambda: log.truncation.truncate_to(offset))

    def _truncate_fully(self, model: LogModel, log: PartitionLog) -> None:
        offset = self.choose.randint(0, model.end + 5)
        self._cut(model, log, 0, lambda: log.truncation.truncate_fully_and_start_at(offset))

    def _cut(
        self, model: LogModel, log: PartitionLog, offset: int, act: Callable[[], object]
    ) -> None:
        model.may_be_cut(offset)
        self.floors[model.topic_partition] = model.durable_end
        if offset == 0:
            model.durable_start, model.is_created = 0, False
            model.start = max(model.start, model.end + 5)
        self.is_cutting = True
        act()
        self.is_cutting = False
        model.cut(log, offset)
        model.latest_epoch += 1
        self.jobs.pop(model.topic_partition, None)

    def _delete_records(self, model: LogModel, log: PartitionLog) -> None:
        offset = self.choose.randint(log.log_start_offset, max(log.log_start_offset, model.end))
        model.start = max(model.start, offset)
        log.retention.advance_log_start(offset)

    def _retain(self, model: LogModel, log: PartitionLog) -> None:
        model.start = max(model.start, model.end)
        log.retention.delete_old_segments(self.clock.now_ms, model.high_watermark)

    def _commit(self, model: LogModel, log: PartitionLog) -> None:
        model.high_watermark = self.choose.randint(model.high_watermark, model.end)

    def _new_epoch(self, model: LogModel, log: PartitionLog) -> None:
        model.latest_epoch = max(model.latest_epoch, log.latest_epoch) + 1
        log.leader_appends.start_epoch(model.latest_epoch)

    def _checkpoint(self, model: LogModel, log: PartitionLog) -> None:
        assert self.manager is not None
        self.manager.write_recovery_points()
        self.manager.write_log_starts()
        for each in self.models:
            each.durable_start = self._log(each).log_start_offset
        self.manager.write_cleaner_offsets()

    def _checkpoint_high_watermarks(self, model: LogModel, log: PartitionLog) -> None:
        assert self.manager is not None
        for each in self.models:
            each.saved_high_watermarks.add(each.high_watermark)
        self.manager.checkpoint_high_watermarks(
            {each.topic_partition: each.high_watermark for each in self.models}
        )
        for each in self.models:
            each.saved_high_watermarks = {each.high_watermark}

    def _compact(self, model: LogModel, log: PartitionLog) -> None:
        """Some steps of a pass; the rest of it later, or never."""
        job = self.jobs.pop(model.topic_partition, None)
        if job is None:
            plan = log.compaction.plan(self.clock.now_ms, model.high_watermark)
            if plan is None:
                return
            job = log.compaction.begin(
                plan, keys_max_bytes=self.choose.choice((96 * 3, 1 << 20)), now_ms=0
            )
        for _ in range(self.choose.randint(1, 12)):
            try:
                job.work()
            except CancelledError as error:
                log.cleaning.failed(job, error)
                return
            if not log.cleaning.advance(job):
                return
        self.jobs[model.topic_partition] = job

    def _wait(self, model: LogModel, log: PartitionLog) -> None:
        self.clock.now_ms += self.choose.choice((1, 50, 400))
        assert self.manager is not None
        self.manager.remove_files(log.segments.take_deleted_files(self.clock.now_ms))

    def _reopen(self, model: LogModel, log: PartitionLog) -> None:
        crash_after, self.disk.crash_after = self.disk.crash_after, None
        crashes = self.choose.random() < 0.5
        if crashes:
            self.disk.crash_after = crash_after
        self._close()
        if self.choose.random() < 0.5:
            self.disk.lose_power(self.choose)
            self.tell("power lost after a stop in order")
        self._open()
        self.disk.crash_after = self.disk.changes + self.choose.randint(1, 60)

    def _close(self) -> None:
        """A stop in order: everything is on the medium after it."""
        manager, self.manager = self.manager, None
        assert manager is not None
        manager.close()
        for model in self.models:
            log = manager.logs[model.topic_partition]
            model.durable_end = model.end
            model.durable_start = log.log_start_offset
            model.flushed(log)
            self.floors[model.topic_partition] = model.end


_ACTIONS: dict[Callable[[CrashProgram, LogModel, PartitionLog], None], int] = {
    CrashProgram._append: 40,
    CrashProgram._flush: 6,
    CrashProgram._flush_a_part: 4,
    CrashProgram._truncate: 5,
    CrashProgram._truncate_fully: 1,
    CrashProgram._delete_records: 3,
    CrashProgram._retain: 4,
    CrashProgram._commit: 6,
    CrashProgram._new_epoch: 4,
    CrashProgram._checkpoint: 6,
    CrashProgram._checkpoint_high_watermarks: 3,
    CrashProgram._compact: 8,
    CrashProgram._wait: 4,
    CrashProgram._reopen: 3,
}


def command_for(seed: int) -> str:
    """Lives a seed again."""
    return f"python -m {CrashProgram.__module__} {seed}"


if __name__ == "__main__":
    CrashProgram(int(sys.argv[1]), print).run()
