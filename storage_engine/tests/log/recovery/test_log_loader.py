"""Files beside the segments when a log is loaded: epochs, leftovers, foreign files. R-LOG8."""

import pytest

from storage_engine.tests.log.support import (
    append,
    fill,
    open_log,
    segment_files,
)


def test_an_index_without_a_log_and_leftovers_of_deletions_are_removed(tmp_path):
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    folder = log.directory
    strays = [f"{99:020d}.index", f"{98:020d}.timeindex", f"{7:020d}.log.deleted", "x.tmp"]
    for name in strays:
        (folder / name).write_bytes(b"x")
    open_log(tmp_path)
    assert not any((folder / name).exists() for name in strays)


@pytest.mark.parametrize(
    "content", [None, b"", b"0\n1\n0 0", b"9\n0\n", b"\xff\xfe", b"0\n2\n0 0\n"]
)
def test_a_lost_or_damaged_epoch_checkpoint_is_learned_from_the_batches(tmp_path, content):
    log = open_log(tmp_path)
    fill(log, 30, epoch=1)
    fill(log, 3, epoch=4)
    fill(log, 30, epoch=5)
    entries = log.leader_epochs.entries
    log.close()
    checkpoint = log.directory / "leader-epoch-checkpoint"
    if content is None:
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(content)
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert again.leader_epochs.entries == entries


def test_epochs_above_the_recovered_end_are_forgotten(tmp_path):
    log = open_log(tmp_path)
    append(log, 2, epoch=1)
    append(log, 2, epoch=2)
    log.close_without_flush()
    path = segment_files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1])
    again = open_log(tmp_path)
    assert again.leader_epochs.entries == ((1, 0),)


def test_a_log_that_ends_before_its_start_begins_anew_there(tmp_path):
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    again = open_log(tmp_path, clean=True, log_start_offset=500, recovery_point=500)
    assert (again.log_start_offset, again.log_end_offset) == (500, 500)
    assert append(again).base_offset == 500


def test_files_with_other_names_are_left_alone(tmp_path):
    log = open_log(tmp_path)
    fill(log, 5)
    log.close()
    names = ["5.log", "note.txt", f"{3:021d}.log", "7.snapshot"]
    for name in names:
        (log.directory / name).write_bytes(b"x")
    again = open_log(tmp_path)
    assert again.log_end_offset == log.log_end_offset
    assert all((log.directory / name).exists() for name in names)
