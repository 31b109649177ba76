"""All logs of a broker, opened for the tests of log dirs."""

from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.tests.log.support import SMALL, loaded_log_manager, new_log_manager

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def open_manager(*log_dirs, load: bool = True, **options) -> LogManager:
    return (loaded_log_manager if load else new_log_manager)(log_dirs, SMALL, **options)
