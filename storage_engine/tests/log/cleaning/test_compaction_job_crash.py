"""A pass that ends at any call of the disk, or by SIGKILL: the log has every key's newest record
(R-LOG8, R-LOG10).
"""

import errno
import os
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.core.errors import LogStorageError
from storage_engine.log.cleaning.compaction_job import CancelledError
from storage_engine.log.files.disk import RealDisk, sync_names
from storage_engine.tests.log.compaction_support import (
    CONFIG,
    Row,
    compact,
    files_of,
    newest_of,
    put,
    rows,
)
from storage_engine.tests.log.support import (
    TP,
    ManualClock,
    check_indexes,
    killed_when_told,
    open_log,
)
from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = pytest.mark.slow

CALLS = (
    "open_for_append", "open_existing", "pwrite", "pread", "truncate", "sync", "open_directory",
    "sync_names", "rename", "remove",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_power_is_lost(monkeypatch):
    """Calls fail, names are taken back and a process is killed: none of that needs what this
    machine's own disk holds, and a third of the time went into waiting for it."""
    for name in ("sync", "sync_names"):
        monkeypatch.setattr(RealDisk, name, lambda self, descriptor: None)


class DyingDisk(RealDisk):
    """Fails from call number `fails_at` on: at that one only, or at all that follow."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails_at = -1
        self.stays_dead = True
        for name in CALLS:
            setattr(self, name, self._counted(getattr(RealDisk, name), name))

    def _counted(self, real, name):
        is_static = name in ("pwrite", "pread")

        def call(*arguments):
            self.calls += 1
            over = self.calls - self.fails_at
            if self.fails_at >= 0 and (over == 0 or (over > 0 and self.stays_dead)):
                raise OSError(errno.EIO, "Input/output error")
            return real(*arguments) if is_static else real(self, *arguments)

        return call


def filled(path: Path, disk: RealDisk):
    log = open_log(path, CONFIG, disk=disk)
    for number in range(6):
        put(log, [(b"a", bytes(100)), (b"b", b"%d" % number)], producer=(4, 0, 2 * number))
        for key in range(8):
            once = b"once %d %d" % (number, key)
            put(log, [(b"k%d" % key, b"%d" % number + bytes(90)), (b"gone", None), (once, b"")])
    log.flush()
    return log


class Filled:
    """A log to be compacted, written once and copied for each pass."""

    def __init__(self, path: Path) -> None:
        log = filled(path, RealDisk())
        self.rows = rows(log)
        self.end = log.log_end_offset
        log.close()
        self._path = path

    def copied(self, path: Path, disk: RealDisk):
        shutil.copytree(self._path, path)
        return open_log(path, CONFIG, disk=disk, clean=True, recovery_point=self.end)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Filled:
    return Filled(tmp_path_factory.mktemp("filled") / "log")


def calls_of_a_pass(written: Filled, path: Path) -> int:
    disk = DyingDisk()
    log = written.copied(path, disk)
    disk.calls = 0
    assert compact(log)
    log.close_without_flush()
    return disk.calls


@pytest.mark.parametrize(
    ("stays_dead", "known_recovery_point", "first"),
    [(True, True, 1), (True, False, 7), (False, True, 13), (False, False, 19)],
)
def test_whatever_call_fails_no_key_loses_its_newest_record(
    written, tmp_path, stays_dead, known_recovery_point, first
):
    """Every call fails in turn; by default one in 24, others for each of the four."""
    total = calls_of_a_pass(written, tmp_path / "whole")
    assert total > 40
    outcomes = set()
    before, end = written.rows, written.end
    for number in range(1, total + 1) if ALL_FAULTS else range(first, total + 1, 24):
        path = tmp_path / str(number)
        disk = DyingDisk()
        log = written.copied(path, disk)
        disk.calls, disk.fails_at, disk.stays_dead = 0, number, stays_dead
        try:
            compact(log)
            outcomes.add("done")
        except LogStorageError:
            outcomes.add("failed")
        except OSError:
            # The log goes on as it was, or with some of its segments compacted.
            outcomes.add("given up")
            disk.fails_at = -1
            assert newest_of(rows(log, max_bytes=5000)) == newest_of(before)
        log.close_without_flush()
        log = open_log(path, CONFIG, clean=False, recovery_point=end if known_recovery_point else 0)
        after = rows(log, max_bytes=5000)
        assert newest_of(after) == newest_of(before)
        assert set(after) <= set(before)
        assert log.log_end_offset == end
        assert log.producer_state.get(4).batches[-1].last_sequence == 11
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in files_of(log))
        compact(log)
        assert newest_of(rows(log, max_bytes=5000)) == newest_of(before)
        log.close()
        check_indexes(path)
    assert {"failed", "given up"} <= outcomes


class LosingDisk(RealDisk):
    """A machine that goes down keeps any of the changes of names since the folder was synced, in
    no order.
    """

    def __init__(self, directory: Path, stash: Path) -> None:
        self.directory = directory
        self.stash = stash
        stash.mkdir(parents=True)
        self.changes: list[tuple[Path, Path | None, Path]] = []
        """Old name, new name (None: removed), and a link to the file."""

    def rename(self, path, target):
        self._note(path, target)
        super().rename(path, target)

    def remove(self, path):
        if path.exists():
            self._note(path, None)
        super().remove(path)

    def sync_names(self, descriptor):
        super().sync_names(descriptor)
        self.changes.clear()

    def _note(self, path, target):
        if path.parent == self.directory:
            link = self.stash / str(len(list(self.stash.iterdir())))
            os.link(path, link)
            self.changes.append((path, target, link))

    def go_down(self, generator: random.Random) -> None:
        """Takes back some of the changes, the latest first."""
        for path, target, link in reversed(self.changes):
            if generator.random() < 0.5:
                if target is not None and target.exists() and target.samefile(link):
                    target.unlink()
                if not path.exists():
                    os.link(link, path)


@pytest.mark.parametrize("seed", range(60 if ALL_FAULTS else 7))
def test_names_that_were_not_synced_may_be_lost_in_any_order(written, tmp_path, seed):
    generator = random.Random(seed)
    path = tmp_path / "log"
    disk = LosingDisk(path / str(TP), tmp_path / "stash")
    log = written.copied(path, disk)
    end = written.end
    sync_names(disk, log.directory)
    plan = log.compaction.plan(0, end)
    job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=0)
    for _ in range(generator.randrange(1, 32)):
        job.work()
        if not log.cleaning.advance(job):
            break
    log.close_without_flush()
    disk.go_down(generator)
    log = open_log(path, CONFIG, recovery_point=end)
    assert newest_of(rows(log, max_bytes=5000)) == newest_of(written.rows)
    assert log.log_end_offset == end
    log.close()


def compact_for_ever(path: str, seed: int) -> None:
    """Runs in the child: writes keys, compacts in steps, and tells what it has written."""
    generator = random.Random(seed)
    config = replace(CONFIG, segment_bytes=8000)
    clock = ManualClock()
    log = open_log(Path(path), config, clock=clock)
    while True:
        for _ in range(generator.randrange(1, 60)):
            key, size = generator.randrange(30), generator.randrange(400)
            codec = generator.choice(["none", "zstd", "lz4"])
            offset = put(log, [(b"k%d" % key, b"x" * size)], compression=codec)
            print(key, offset, size, flush=True)
        log.flush()
        plan = log.compaction.plan(clock.now_ms, log.log_end_offset)
        if plan is None:
            continue
        job = log.compaction.begin(
            plan, keys_max_bytes=generator.choice([200, 1 << 20]), now_ms=clock.now_ms
        )
        try:
            while True:
                job.work()
                if not log.cleaning.advance(job):
                    break
                if generator.random() < 0.05:
                    log.cleaning.stop()
        except CancelledError as error:
            assert log.cleaning.failed(job, error) is None
        for doomed in log.segments.take_deleted_files(clock.now_ms):
            doomed.unlink(missing_ok=True)


KILL_SEEDS = range(3) if ALL_FAULTS else range(1)
KILLS = 4 if ALL_FAULTS else 1
"""The kills for each seed."""
TOLD_BYTES = 12_000 if ALL_FAULTS else 4_000
"""At most, of each child before it is killed: some ten bytes for each record, which it waits for
the disk to have."""


@pytest.mark.parametrize("seed", KILL_SEEDS)
def test_every_key_has_its_newest_record_after_sigkill(tmp_path, seed):
    generator = random.Random(seed)
    newest: dict[int, tuple[int, int]] = {}
    for round_number in range(KILLS):
        wanted = generator.randrange(1000, TOLD_BYTES)
        output = killed_when_told(
            __name__, tmp_path, str(seed * 10 + round_number), told_bytes=wanted
        )
        for line in output[: output.rfind(b"\n") + 1].splitlines():
            key, offset, size = map(int, line.split())
            newest[key] = (offset, size)

        log = open_log(tmp_path, replace(CONFIG, segment_bytes=8000))
        found = newest_of(rows(log, max_bytes=5000))
        for key, (offset, size) in newest.items():
            row = found[b"k%d" % key]
            # The last one before the kill may have been written without having been told.
            assert row == Row(offset, b"k%d" % key, b"x" * size, 1000) or row.offset > max(
                offset for offset, _ in newest.values()
            )
        newest = {
            int((key or b"")[1:]): (row.offset, len(row.value or b"")) for key, row in found.items()
        }
        log.close()
        check_indexes(tmp_path)


if __name__ == "__main__":
    compact_for_ever(sys.argv[1], int(sys.argv[2]))
