"""Compaction of a typed log that ends at any call of the disk, or by SIGKILL: every key has its
newest row (R-LOG8, R-LOG10)."""

import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import RealDisk
from storage_engine.tests.log.cleaning.test_compaction_job_crash import DyingDisk
from storage_engine.tests.log.compaction_support import CONFIG, compact, files_of, newest_of
from storage_engine.tests.log.support import check_indexes, killed_when_told, open_log
from storage_engine.tests.log.typed_support import SCHEMA, put_typed, typed_rows
from storage_engine.tests.sampling import ALL_FAULTS

TYPED = replace(CONFIG, segment_bytes=5000, schema=SCHEMA)


@pytest.fixture(autouse=True)
def _no_power_is_lost(monkeypatch):
    """Calls fail and a process is killed: none of that needs what the disk holds."""
    for name in ("sync", "sync_names"):
        monkeypatch.setattr(RealDisk, name, lambda self, descriptor: None)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a log, its rows and its end."""
    path = tmp_path_factory.mktemp("typed") / "log"
    log = open_log(path, TYPED)
    for number in range(12):
        put_typed(log, [("a", f"{number}"), ("b", None)], producer=(4, 0, 2 * number))
        put_typed(log, [(f"k{number % 4}", "x" * number), (f"once {number}", "")])
    log.flush()
    found = path, typed_rows(log), log.log_end_offset
    log.close()
    return found


def copied(written, path: Path, disk: RealDisk):
    shutil.copytree(written[0], path)
    return open_log(path, TYPED, disk=disk, clean=True, recovery_point=written[2])


@pytest.mark.parametrize("stays_dead", [True, False])
def test_whatever_call_fails_no_key_loses_its_newest_row(written, tmp_path, stays_dead):
    """Every call fails in turn; by default one in twenty."""
    _, before, end = written
    disk = DyingDisk()
    log = copied(written, tmp_path / "whole", disk)
    disk.calls = 0
    assert compact(log)
    assert len(typed_rows(log)) < len(before)
    log.close_without_flush()
    total = disk.calls
    for number in range(1 + 10 * stays_dead, total + 1, 1 if ALL_FAULTS else 20):
        path = tmp_path / str(number)
        disk = DyingDisk()
        log = copied(written, path, disk)
        disk.calls, disk.fails_at, disk.stays_dead = 0, number, stays_dead
        try:
            compact(log)
        except LogStorageError:
            pass
        except OSError:
            # The log goes on as it was, or with some of its segments compacted.
            disk.fails_at = -1
            assert newest_of(typed_rows(log)) == newest_of(before)
        log.close_without_flush()
        log = open_log(path, TYPED, clean=False, recovery_point=end if stays_dead else 0)
        after = typed_rows(log)
        assert newest_of(after) == newest_of(before)
        assert set(after) <= set(before)
        assert log.log_end_offset == end
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in files_of(log))
        compact(log)
        assert newest_of(typed_rows(log)) == newest_of(before)
        log.close()
        check_indexes(path)


def compact_for_ever(path: str, seed: int) -> None:
    """Runs in the child: writes rows, compacts, and tells what it has written."""
    generator = random.Random(seed)
    log = open_log(Path(path), TYPED)
    while True:
        for _ in range(generator.randrange(1, 30)):
            key, size = generator.randrange(10), generator.randrange(200)
            offset = put_typed(log, [(f"k{key}", "x" * size)], compression="lz4")
            print(key, offset, size, flush=True)
        compact(log, buffer_bytes=generator.choice([200, 1 << 20]))
        for doomed in log.segments.take_deleted_files(1 << 60):
            doomed.unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(4) if ALL_FAULTS else range(1))
def test_every_key_has_its_newest_row_after_sigkill(tmp_path, seed):
    generator = random.Random(seed)
    newest: dict[int, tuple[int, int]] = {}
    wanted = generator.randrange(2000, 4000)
    output = killed_when_told(__name__, tmp_path, str(seed), told_bytes=wanted)
    for line in output[: output.rfind(b"\n") + 1].splitlines():
        key, offset, size = map(int, line.split())
        newest[key] = (offset, size)
    last = max(offset for offset, _ in newest.values())
    log = open_log(tmp_path, TYPED)
    found = newest_of(typed_rows(log))
    for key, (offset, size) in newest.items():
        row = found[b"k%d" % key]
        # The last one before the kill may have been written without having been told.
        assert row.offset > last or (row.offset, row.value) == (offset, b"x" * size)
    log.close()
    check_indexes(tmp_path)


if __name__ == "__main__":
    compact_for_ever(sys.argv[1], int(sys.argv[2]))
