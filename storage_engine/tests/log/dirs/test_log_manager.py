"""All logs of a broker together: R-LOG1, R-LOG8, R-CTL6, R-REP10."""

from typing import Any

from storage_engine.core.ids import TAIL_LOST_NOW, TopicPartition
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.dirs.managers import A0, A1, B0, open_manager
from storage_engine.tests.log.support import (
    append,
    fill,
)


class Later:
    """Background work that is done when told."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, work, on_done, on_error):
        self.waiting.append((work, on_done))

    def run(self):
        for work, on_done in self.waiting:
            on_done(work())
        self.waiting.clear()


def test_logs_are_there_again_after_a_stop_in_order(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    fill(manager.get_or_create(B0), 5)
    ends = {tp: log.log_end_offset for tp, log in manager.logs.items()}
    manager.close()
    again = open_manager(tmp_path)
    assert again.dirs.were_shut_down_clean
    assert again.dirs.tail_lost_epoch == TAIL_LOST_NOW, "it was new, and never registered"
    assert again.recovered_bytes == 0
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == ends
    assert again.get(A1) is None


def test_a_deleted_partition_is_gone_and_may_come_anew(tmp_path):
    background = Later()
    manager = open_manager(tmp_path, background=background)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].flush()
    manager.write_recovery_points()
    manager.checkpoint_high_watermarks({A0: 20})
    manager.delete(A0)
    assert manager.get(A0) is None
    assert not (tmp_path / "a-0").exists()
    log = manager.get_or_create(A0)
    assert (log.log_end_offset, log.recovery_point, manager.high_watermark(A0)) == (0, 0, 0)
    append(log)
    background.run()
    assert not list(tmp_path.glob("*-delete"))
    manager.abandon()
    again = open_manager(tmp_path)
    assert again.logs[A0].log_end_offset == 1
    assert again.logs[A0].recovered_bytes > 0


def test_the_longest_topic_name_can_be_deleted(tmp_path):
    manager = open_manager(tmp_path)
    long = TopicPartition("x" * 249, 12345)
    manager.get_or_create(long)
    manager.delete(long)
    assert manager.logs == {}
    assert not list(tmp_path.glob("x*"))


def test_each_topic_has_its_settings(tmp_path):
    def config_of(topic: str) -> LogConfig:
        return LogConfig(max_message_bytes=100 if topic == "a" else 200)

    manager = open_manager(tmp_path, config_of=config_of)
    assert manager.get_or_create(A0).config.max_message_bytes == 100
    assert manager.get_or_create(B0, LogConfig(max_message_bytes=5)).config.max_message_bytes == 5


def test_a_file_that_can_not_be_removed_keeps_no_other_one(tmp_path):
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir()
    gone.touch()
    manager = open_manager(tmp_path / "logs")
    manager.remove_files([kept, gone])
    assert kept.exists() and not gone.exists()
    manager.close()
