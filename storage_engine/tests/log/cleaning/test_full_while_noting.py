"""A log dir that is full when a log has to note something before it changes: the action is refused
as one that goes well once there is room, and can be tried again (R-LOG8, R-LOG10)."""

import errno
from dataclasses import replace

import pytest

from storage_engine.core.errors import LogFullError
from storage_engine.tests.log.compaction_support import CONFIG, fill_keys, put, rows
from storage_engine.tests.log.support import (
    SavedOffsets,
    join,
    make_batch,
    open_log,
    read_all,
)


class Notes:
    """Writes them as long as there is room."""

    def __init__(self) -> None:
        self.is_full = False
        self.count = 0

    def write(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.count += 1


@pytest.mark.parametrize("what", ["the recovery point", "that there will be gaps"])
def test_a_pass_that_can_not_note_what_it_needs_is_begun_when_there_is_room(tmp_path, what):
    notes = Notes()
    saved = {"the recovery point": 0, "that there will be gaps": 1 << 40}[what]
    log = open_log(
        tmp_path,
        CONFIG,
        checkpoints=SavedOffsets(notes.write, saved),
    )
    fill_keys(log, 5, 9)
    log.flush()
    plan = log.compaction.plan(1_000_000, log.log_end_offset)
    notes.is_full = True
    for _ in range(2):
        with pytest.raises(LogFullError):
            log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=1_000_000)
    notes.is_full = False
    content = rows(log)
    job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=1_000_000)
    assert notes.count
    job.work()
    while log.cleaning.advance(job):
        job.work()
    assert 0 < len(rows(log)) < len(content)
    log.close()


def test_a_follower_that_can_not_note_a_gap_stores_it_when_there_is_room(tmp_path):
    notes = Notes()
    config = replace(CONFIG, cleanup_policy="delete")
    log = open_log(tmp_path, config, checkpoints=SavedOffsets(notes.write))
    log.follower_appends.append(make_batch(2))
    answer = join(make_batch(1, base_offset=7), make_batch(1, base_offset=8))
    notes.is_full = True
    for _ in range(2):
        with pytest.raises(LogFullError):
            log.follower_appends.append(answer)
    assert log.log_end_offset == 2
    notes.is_full = False
    log.follower_appends.append(answer)
    assert notes.count == 1
    assert [header.base_offset for header in read_all(log)] == [0, 7, 8]
    assert put(log, [(b"key", b"value")]) == 9
    log.close()
