"""A process that drops the end of its log, as a follower does whose leader has died, is killed with
SIGKILL before any change of a file on the way, and after the last (R-LOG8): what was not to be
dropped is all there, the producers are those of the batches that are left, and go on where these
end.
"""

import os
import shutil
import signal
from itertools import count
from pathlib import Path

import pytest

from storage_engine.core.errors import OutOfOrderSequenceError
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.producer_replay import record_batch
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.log.state.test_producer_replay_cut import Writers, told
from storage_engine.tests.log.support import (
    TP,
    append,
    join,
    loaded_log_manager,
    make_batch,
)
from storage_engine.tests.log.transaction_support import abort, commit, next_sequence, write
from storage_engine.tests.sampling import ALL_FAULTS

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, file_delete_delay_ms=0)
CHANGES = ("pwrite", "truncate", "sync", "sync_names", "rename", "remove", "open_for_append")
ENDED = 3
"""The exit code of a child that had fewer changes to make."""


class KillingDisk(RealDisk):
    """Once armed, kills its process before the change of that number."""

    def __init__(self) -> None:
        self.left: int | None = None
        for name in CHANGES:
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, call):
        def change(*args):
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args)

        return change


def opened(folder: Path, disk: RealDisk | None = None) -> tuple[LogManager, PartitionLog]:
    options = {} if disk is None else {"disk": disk}
    manager = loaded_log_manager([folder], CONFIG, **options)
    return manager, manager.get_or_create(TP)


def written(folder: Path, tail: str) -> tuple[int, bytes]:
    """A log of several segments; where its diverged end begins, and the bytes before that."""
    manager, log = opened(folder)
    writers = Writers(log)
    for number in range(300):
        writers.step("data", 5 if number % 20 == 7 else 4, 1)
    write(log, 9, (b"k", b"kept"))
    commit(log, 9)
    write(log, 9, (b"k", b"open"))
    writers.step("data", 4, 2)
    assert len(log.segments) > 1
    cut, kept = log.log_end_offset, stored(log)
    assert cut > log.segments.active.base_offset
    writers.step("data", 4, 3)
    writers.step("none", -1, 2)
    if tail != "short":
        # The last segment has too few batches of it to tell what it was before.
        writers.step("epoch", 5, 1)
    if tail == "transactions":
        write(log, 9, (b"k", b"dropped"))
        abort(log, 9)
        write(log, 10, (b"k", b"dropped"))
        writers.step("data", 4, 1)
    manager.close()
    return cut, kept


def stored(log: PartitionLog) -> bytes:
    return b"".join(
        path.read_bytes()[: segment.size]
        for segment in log.segments.all
        for path in [segment.file.path]
    )


def found_by_a_replay_of_all(log: PartitionLog) -> ProducerStates:
    """Without snapshots, indexes, and the code that begins in the middle."""
    states = ProducerStates()
    data = memoryview(stored(log))
    for position, header in iter_headers(data):
        if header.producer_id >= 0:
            marker = read_marker(data[position:]) if header.is_control else None
            offset, time_ms = header.base_offset, header.max_timestamp
            record_batch(states, header, offset, time_ms, marker, now_ms=0)
    return states


def of_the_next_leader(log: PartitionLog, cut: int) -> memoryview:
    """Return the next leader's batches from the cut on."""
    first = next_sequence(log, 4)
    made = []
    for number in range(8):
        batch = make_batch(base_offset=cut + number, epoch=1, producer=(4, 0, first + number))
        made.append(batch)
    return join(*made)


def cut_and_follow(folder: Path, cut: int, kill_before: int) -> int:
    """In a process that is killed before that change, or ends after the last; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        disk = KillingDisk()
        _, log = opened(folder, disk)
        disk.left = kill_before
        log.truncation.truncate_to(cut)
        log.follower_appends.append(of_the_next_leader(log, cut))
        # As a killed process leaves it, though nothing was left to kill it at.
        os._exit(ENDED)
    finally:
        os._exit(1)


def check_producers_go_on(log: PartitionLog) -> None:
    """The last batch of a producer is known, the next one is taken, one behind a gap is not."""
    entry = log.producer_state.get(4)
    assert entry is not None
    last = entry.batches[-1]
    size = last.last_offset - last.base_offset + 1
    again = append(log, size, epoch=2, producer=(4, 0, last.first_sequence))
    assert again.duplicate
    assert again.base_offset == last.base_offset
    with pytest.raises(OutOfOrderSequenceError):
        append(log, epoch=2, producer=(4, 0, last.last_sequence + 2))
    append(log, epoch=2, producer=(4, 0, last.last_sequence + 1))


def follow_on_and_be_killed(folder: Path, cut: int) -> int:
    """In a process that flushes what the next leader sent, beyond the log's old end, and is killed;
    its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        manager, log = opened(folder)
        old_end = log.log_end_offset
        log.truncation.truncate_to(cut)
        log.follower_appends.append(of_the_next_leader(log, cut))
        assert log.log_end_offset >= old_end
        log.flush()
        manager.write_recovery_points()
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)


@pytest.mark.parametrize("tail", ["short", "idempotent"])
def test_the_snapshot_of_a_dropped_end_is_not_that_of_what_was_written_in_its_place(tmp_path, tail):
    """A stop in order has left it. What stands at its offset now is of another leader: a batch of
    that would be taken a second time, and the producer's next one refused."""
    cut, _ = written(tmp_path, tail)
    assert follow_on_and_be_killed(tmp_path, cut) == -signal.SIGKILL
    manager, log = opened(tmp_path)
    assert log.log_end_offset == cut + 8
    assert told(log.producer_state) == told(found_by_a_replay_of_all(log))
    log.leader_appends.start_epoch(2)
    check_producers_go_on(log)
    manager.close()


@pytest.mark.parametrize("tail", ["short", "idempotent", "transactions"])
def test_a_process_killed_while_it_drops_an_end_goes_on_with_what_is_left(tmp_path, tail):
    (tmp_path / "first").mkdir()
    cut, kept = written(tmp_path / "first", tail)
    ends = set()
    for kill_before in count(step=1 if ALL_FAULTS else 2):
        folder = tmp_path / str(kill_before)
        shutil.copytree(tmp_path / "first", folder)
        code = cut_and_follow(folder, cut, kill_before)
        assert code in (-signal.SIGKILL, ENDED)
        manager, log = opened(folder)
        assert stored(log)[: len(kept)] == kept
        assert told(log.producer_state) == told(found_by_a_replay_of_all(log))
        ends.add(log.log_end_offset)
        if code != ENDED and log.latest_epoch < 1:
            # The next leader says the same again.
            log.truncation.truncate_to(cut)
            assert stored(log) == kept
            assert told(log.producer_state) == told(found_by_a_replay_of_all(log))
            log.follower_appends.append(of_the_next_leader(log, cut))
        assert log.producer_state.transactions.ongoing == {9: cut - 3}
        log.leader_appends.start_epoch(2)
        check_producers_go_on(log)
        manager.close()
        shutil.rmtree(folder)
        if code == ENDED:
            break
    assert len(ends) > 2, "killed before the cut, after it, and after the next leader's batches"
