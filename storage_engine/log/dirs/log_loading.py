"""Opens all logs of a broker when it starts, and recovers them where the last stop was unclean.

Source: R-LOG8.
"""

import logging
from collections.abc import Callable

from storage_engine.core.errors import LogDirError, LogShortageError, LogStorageError, StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dir import BrokerLogDir
from storage_engine.log.dirs.log_dirs import LogDirs, cannot_start
from storage_engine.log.dirs.log_moves import LogMoves
from storage_engine.log.dirs.open_logs import OpenLogs
from storage_engine.log.recovery.recovery import RecoveryProgress, begin_progress

logger = logging.getLogger(__name__)


class LogLoading:
    """Used once. When a log dir fails, its logs are closed again, and the others are loaded."""

    def __init__(self, dirs: LogDirs, open_logs: OpenLogs) -> None:
        self._dirs = dirs
        self._open_logs = open_logs
        self.recovered_bytes = 0
        """The number of bytes that had to be checked, in all logs."""

    def run(self, moves: LogMoves) -> None:
        """Opens the logs; from here on a stop without `mark_clean` counts as unclean. StorageError
        when the broker can't start."""
        self._in_each_dir(self._begin)
        try:
            moves.recover(self._dirs.working)
        except OSError as error:
            raise StorageError(
                f"a replica that was moved to another log dir can't be renamed: {error}"
            ) from error
        self.load_logs(self._find_partitions())
        self._in_each_dir(self._open_logs.lower_recovery_points)
        self._in_each_dir(self._make_gaps_prove_crash)

    def load_logs(self, found: dict[TopicPartition, BrokerLogDir]) -> None:
        progress = {log_dir: self._progress(log_dir, found) for log_dir in self._dirs.working}
        for topic_partition, log_dir in found.items():
            if not log_dir.failed:
                self._load(topic_partition, log_dir, progress[log_dir])
        self._close_logs_of_failed_dirs()
        logger.info(
            "logs loaded partitions=%d clean=%s recovered_bytes=%d",
            len(self._open_logs.logs),
            self._dirs.were_shut_down_clean,
            self.recovered_bytes,
        )

    def _load(
        self, topic_partition: TopicPartition, log_dir: BrokerLogDir, progress: RecoveryProgress
    ) -> None:
        clean = log_dir.was_clean_shutdown
        try:
            log = self._open_logs.open(log_dir, topic_partition, clean=clean, progress=progress)
        except LogShortageError as error:
            raise cannot_start(error) from error
        except (OSError, LogStorageError) as error:
            self._dirs.lose(log_dir, error)
            return
        self._open_logs.put(log, log_dir)
        # After an unclean stop the bytes below the recovery points are checked soon, too.
        known_ms = log_dir.scrub_times.get(topic_partition, 0)
        log.scrubbed_ms = min(known_ms, log.scrubbed_ms) if clean else 0
        self.recovered_bytes += log.recovered_bytes
        progress.opened()

    def _in_each_dir(self, work: Callable[[BrokerLogDir], None]) -> None:
        self._dirs.do_at_start(work)
        self._close_logs_of_failed_dirs()

    def _close_logs_of_failed_dirs(self) -> None:
        dir_of = self._open_logs.dir_of
        for topic_partition in [tp for tp, log_dir in dir_of.items() if log_dir.failed]:
            self._open_logs.remove(topic_partition).close_without_flush()

    def _begin(self, log_dir: BrokerLogDir) -> None:
        log_dir.begin()
        for path in log_dir.deleted_folders():
            self._open_logs.remove_folder(path)

    def _find_partitions(self) -> dict[TopicPartition, BrokerLogDir]:
        found: dict[TopicPartition, BrokerLogDir] = {}

        def find(log_dir: BrokerLogDir) -> None:
            for topic_partition in log_dir.partitions():
                if topic_partition in found:
                    raise StorageError(
                        f"partition {topic_partition} is in two log dirs,"
                        f" {found[topic_partition].path} and {log_dir.path}: move one of them away"
                    )
                found[topic_partition] = log_dir

        self._in_each_dir(find)
        return found

    def _progress(
        self, log_dir: BrokerLogDir, found: dict[TopicPartition, BrokerLogDir]
    ) -> RecoveryProgress:
        recovery_points = {
            log_dir.path / str(tp): log_dir.recovery_points.get(tp, 0)
            for tp, each in found.items()
            if each is log_dir
        }
        return begin_progress(
            self._open_logs.disk,
            self._open_logs.clock,
            log_dir.path,
            recovery_points,
            clean=log_dir.was_clean_shutdown,
        )

    def _make_gaps_prove_crash(self, log_dir: BrokerLogDir) -> None:
        """Makes sure that from now on every gap between two segments lies below the recovery point
        on the medium, except gaps that crashes leave."""
        if log_dir.gaps_prove_crash:
            return
        try:
            for _, log in self._open_logs.of_dir(log_dir):
                if log.cleaning.may_have_gaps:
                    log.flush()
        except LogDirError:
            # After a failed fsync the content of the medium is unknown.
            raise
        except LogStorageError as error:
            logger.warning("gaps in offsets can't be recognised before the next start: %s", error)
            return
        self._open_logs.write_recovery_points(log_dir)
        log_dir.gaps_prove_crash = True
