"""A log is continued only behind a batch that was found in it again; a changed one is copied
anew."""

from uuid import UUID

import pytest

from storage_engine.backup.folder_store import FolderStore
from storage_engine.backup.log_copy import LogCopy
from storage_engine.backup.maker import is_complete_after
from storage_engine.backup.manifest import TopicBackup
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import empty_batch, read_header

TP = TopicPartition("topic", 0)


def batches(*bases: int, epoch: int = 3, count: int = 10):
    for base in bases:
        data = memoryview(
            empty_batch(base_offset=base, next_offset=base + count, leader_epoch=epoch)
        )
        yield read_header(data), data


def copied(tmp_path, number: int, before=None) -> LogCopy:
    log = LogCopy(TP, UUID(int=1), FolderStore(tmp_path), f"-{number:08d}-run")
    if before is not None:
        log.go_on_behind(before)
    return log


@pytest.fixture
def before(tmp_path):
    """The backup of a log with the offsets 0 to 30."""
    log = copied(tmp_path, 1)
    log.log_starts_at(0)
    for header, batch in batches(0, 10, 20):
        assert log.take(header, batch)
    assert log.copied_to(30)
    return log.backup()


def test_a_log_goes_on_behind_its_last_batch(tmp_path, before):
    log = copied(tmp_path, 2, before)
    log.log_starts_at(0)
    assert log.wanted(40) == (20, 40)
    assert all(log.take(header, batch) for header, batch in batches(20, 30))
    assert log.copied_to(40)
    assert [(each.base_offset, each.end_offset) for each in log.files] == [(0, 30), (30, 40)]
    assert log.files[0] == before.files[0]


def test_a_log_without_anything_new_is_the_same(tmp_path, before):
    log = copied(tmp_path, 2, before)
    log.log_starts_at(0)
    assert log.wanted(30) == (20, 30)
    assert all(log.take(header, batch) for header, batch in batches(20))
    assert log.copied_to(30)
    assert log.backup() == before


@pytest.mark.parametrize(
    "found",
    [
        list(batches(20, epoch=4)),
        list(batches(20, count=5)),
        list(batches(25)),
    ],
)
def test_a_log_that_has_another_batch_there_is_copied_anew(tmp_path, before, found):
    log = copied(tmp_path, 2, before)
    log.log_starts_at(0)
    log.wanted(40)
    assert not log.take(*found[0])
    assert log.wanted(40) == (0, 40)
    assert log.files == []


def test_a_log_that_lost_its_end_is_copied_anew(tmp_path, before):
    log = copied(tmp_path, 2, before)
    log.log_starts_at(0)
    assert log.wanted(25) == (0, 25)
    log = copied(tmp_path, 2, before)
    log.log_starts_at(0)
    log.wanted(30)
    assert not log.copied_to(30), "the batch was not there at all"
    assert log.wanted(30) == (0, 30)


def test_files_below_the_start_of_the_log_are_left_out(tmp_path, before):
    log = copied(tmp_path, 2, before)
    log.log_starts_at(15)
    assert log.files == list(before.files)
    log.wanted(30)
    assert all(log.take(header, batch) for header, batch in batches(20))
    log.log_starts_at(35)
    assert log.files == []
    assert log.wanted(40) == (35, 40)


def test_a_compacted_topic_is_copied_anew_before_tombstones_are_gone():
    topic = TopicBackup(
        name="topic",
        topic_id="0" * 32,
        compacted=False,
        copied_ms=1_000,
        delete_retention_ms=100,
        partitions=(),
    )
    assert is_complete_after(topic, False, 10_000)
    assert is_complete_after(topic, True, 1_049)
    assert not is_complete_after(topic, True, 1_050)
    assert not is_complete_after(topic, True, 999), "the clock was put back"
