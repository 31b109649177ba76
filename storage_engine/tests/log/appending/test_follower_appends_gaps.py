"""Offsets that are missing in a log that is not compacted any more, or never was: nothing behind
them may pass for damage (R-LOG8, R-LOG10).
"""

from dataclasses import replace
from pathlib import Path

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import ANY_FORGOTTEN
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.checkpoints import CLEANER_OFFSETS_FILE, read_offsets
from storage_engine.tests.log.compaction_support import CONFIG, compact, put, rows
from storage_engine.tests.log.support import (
    SavedOffsets,
    join,
    make_batch,
    open_log,
    read_all,
)

DELETED = replace(CONFIG, cleanup_policy="delete")


class Saved:
    """The checkpoints of a log: written when the log asks for it, else never."""

    def __init__(self) -> None:
        self.first_dirty_offset = 0
        self.count = 0

    def of(self, log: PartitionLog) -> None:
        self.first_dirty_offset = log.cleaning.first_dirty_offset
        self.count += 1


def killed_and_opened(path: Path, log: PartitionLog, saved: Saved) -> PartitionLog:
    log.close_without_flush()
    return open_log(path, DELETED, first_dirty_offset=saved.first_dirty_offset)


def test_a_replica_of_a_log_that_was_compacted_once_keeps_what_stands_behind_a_gap(tmp_path):
    saved = Saved()
    log: PartitionLog = open_log(tmp_path, DELETED, checkpoints=SavedOffsets(lambda: saved.of(log)))
    log.follower_appends.append(join(make_batch(2), make_batch(1, base_offset=7)))
    log.follower_appends.append(make_batch(1, base_offset=9))
    assert saved.count == 1, "written once, not with every gap"
    assert log.producer_state.forgotten_to == ANY_FORGOTTEN, (
        "the records of a producer may be among the missing"
    )
    headers = read_all(log)
    assert read_all(killed_and_opened(tmp_path, log, saved)) == headers
    assert len(headers) == 3


def test_the_first_batch_of_a_replica_may_lie_behind_a_gap(tmp_path):
    saved = Saved()
    log: PartitionLog = open_log(tmp_path, DELETED, checkpoints=SavedOffsets(lambda: saved.of(log)))
    log.follower_appends.append(make_batch(1, base_offset=7))
    again = killed_and_opened(tmp_path, log, saved)
    assert [header.base_offset for header in read_all(again)] == [7]


def test_a_log_that_is_compacted_no_more_keeps_what_stands_behind_its_gaps(tmp_path):
    """Killed before a checkpoint told of the pass, and with an old recovery point."""
    saved = Saved()
    log = open_log(tmp_path, CONFIG)
    for number in range(60):
        put(log, [(b"%d" % (number % 7), b"%d" % number + bytes(60))])
    assert compact(log)
    expected = rows(log)
    assert len(expected) < 50
    log.update_config(DELETED)
    saved.of(log)
    assert rows(killed_and_opened(tmp_path, log, saved)) == expected


def test_a_log_that_is_killed_in_or_after_its_first_pass_keeps_what_stands_behind_the_gaps(
    tmp_path,
):
    """A broker opens its logs before it knows the policies of their topics."""
    saved = Saved()
    log: PartitionLog = open_log(tmp_path, CONFIG, checkpoints=SavedOffsets(lambda: saved.of(log)))
    for number in range(60):
        put(log, [(b"%d" % (number % 7), b"%d" % number + bytes(60))])
    assert compact(log)
    expected = rows(log)
    assert len(expected) < 50
    assert saved.count == 1, "written once, before the files have gaps"
    assert rows(killed_and_opened(tmp_path, log, saved)) == expected


def test_a_new_replica_of_a_compacted_log_keeps_what_stands_behind_its_gaps(tmp_path):
    """It has copied the gaps, and was killed before it compacted anything itself."""
    saved = Saved()
    log: PartitionLog = open_log(tmp_path, CONFIG, checkpoints=SavedOffsets(lambda: saved.of(log)))
    log.follower_appends.append(join(make_batch(2), make_batch(1, base_offset=7)))
    log.follower_appends.append(make_batch(1, base_offset=9))
    headers = read_all(log)
    assert len(headers) == 3
    assert read_all(killed_and_opened(tmp_path, log, saved)) == headers


def test_a_log_that_ends_before_what_was_clean_may_have_gaps_all_the_same(tmp_path):
    log = open_log(tmp_path, DELETED)
    log.follower_appends.append(join(make_batch(2), make_batch(1, base_offset=7)))
    log.close_without_flush()
    again = open_log(tmp_path, DELETED, first_dirty_offset=1000)
    assert again.cleaning.first_dirty_offset == 1
    assert again.log_end_offset == 8


def test_a_broker_notes_at_once_that_a_topic_is_compacted_no_more(tmp_path):
    cluster = SimulatedCluster(tmp_path, 3)
    assert cluster.create_topic("t", cleanup_policy="compact").error_code == 0
    tp = TopicPartition("t", 0)
    replicas = cluster[1].replicas
    cluster.loop.run_until(lambda: replicas.get(tp) is not None, limit_ms=10_000)
    config = replicas.get(tp).config
    path = replicas.get(tp).log.directory.parent / CLEANER_OFFSETS_FILE
    disk = replicas.get(tp).log.disk
    assert not disk.exists(path)
    altered = replace(config, log=replace(config.log, cleanup_policy="delete"))
    replicas.apply_topic_config("t", altered)
    assert read_offsets(disk, path).offsets == {tp: 1}
    cluster.close()
