"""The bound on open files: whatever is released is opened again when it is needed."""

import os
from pathlib import Path

from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.tests.log.support import SMALL, append, fill, open_log, read_all


def open_descriptors(folder: Path) -> int:
    """How many files of the folder this process has open."""
    links = (os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
    return sum(Path(target).is_relative_to(folder) for target in links)


def test_a_log_of_many_segments_is_read_with_few_open_files(tmp_path):
    pool = OpenFiles(4)
    log = open_log(tmp_path, SMALL, pool=pool)
    fill(log, 200)
    log.update_config(SMALL)
    assert log.segment_count > 10
    assert len(read_all(log)) == 200
    assert len(pool) <= 4
    assert 0 < open_descriptors(tmp_path) <= 5
    append(log)
    assert len(read_all(log)) == 201
    log.close()
    assert len(pool) == 0
    assert open_descriptors(tmp_path) == 0


def test_what_was_used_recently_is_released_last():
    class Item:
        def __init__(self) -> None:
            self.recently_used = False
            self.released = 0

        def release(self) -> None:
            self.released += 1

    pool = OpenFiles(2)
    first, second, third = Item(), Item(), Item()
    pool.add(first)
    pool.add(second)
    first.recently_used = True
    pool.add(third)
    assert (first.released, second.released, third.released) == (0, 1, 0)
    assert not first.recently_used


def test_a_loaded_log_holds_no_open_file(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=999)
    assert open_descriptors(tmp_path) == 0
    assert len(read_all(log)) == 30
    log.close()
