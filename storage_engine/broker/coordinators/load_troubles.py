"""Handles logs of coordinators that can't be read. Damage is repaired from a replica; where that
does not help, or the disk fails, a sound replica becomes leader.

    damaged bytes      told to the scrubber, which fetches them from a replica; read again after a
                       pause that grows; after some tries at the same place leadership is given to
                       another in-sync replica, if one lives: this one is offline until its broker
                       is restarted
    the medium fails   the log dir is offline at once, as for any reader; a failure of one
                       file gives the replica away when a second load, begun anew, ends by such a
                       failure, too: compaction may have replaced the segment that was read
    any other failure  read again after a pause that grows: the others would fail just so
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogDirError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
TRIES = 6
"""The number of attempts to read the same damaged place, half a minute in all: enough time to
repair a segment."""
STORAGE_TRIES = 2
"""Loads in a row that end by a file that can't be read: the first may have lost a segment to the
cleaner, the second has looked up anew which there are."""
LOG_EVERY_MS = 60_000
"""The same failure is logged this often."""


class DamagedLogError(CorruptRecordError):
    """Bytes of the log are not what was appended, from `offset` on."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


@dataclass(slots=True)
class _Trouble:
    """The failed loads of one partition, until its log is read, while this broker leads it."""

    leader: object
    tries: int = 0
    damaged_offset: int = -1
    damage_tries: int = 0
    """Failed attempts at this place; other failures, and damage that was repaired, do not count."""
    storage_tries: int = 0
    """Loads in a row that ended by a file that can't be read."""
    text: str = ""
    logged_ms: int = 0


class LoadTroubles:
    """Decides what follows when the coordinators of one broker can't read their logs."""

    def __init__(
        self,
        clock: Clock,
        *,
        repair: Callable[[HostedPartition, int], None],
        is_sound_elsewhere: Callable[[HostedPartition], bool],
        give_away: Callable[[HostedPartition, KafkaError], None],
    ) -> None:
        """`repair`: has what is damaged at that offset fetched from a replica.
        `is_sound_elsewhere`: whether another replica could lead. `give_away`: takes this one out of
        service, so that another leads, if one can."""
        self._clock = clock
        self._repair = repair
        self._is_sound_elsewhere = is_sound_elsewhere
        self._give_away = give_away
        self._troubles: dict[TopicPartition, _Trouble] = {}

    def failed(self, partition: HostedPartition, failure: Exception) -> int:
        """The delay before the log is read again."""
        tp = partition.topic_partition
        trouble = self._troubles.get(tp)
        if trouble is None or trouble.leader is not partition.leader:
            # It may have been led elsewhere during the pause.
            trouble = self._troubles[tp] = _Trouble(partition.leader)
        trouble.tries += 1
        self._log_failure(tp, trouble, failure)
        is_storage = isinstance(failure, LogStorageError) and not isinstance(failure, LogBusyError)
        trouble.storage_tries = trouble.storage_tries + 1 if is_storage else 0
        if isinstance(failure, LogStorageError) and is_storage:
            if isinstance(failure, LogDirError) or trouble.storage_tries >= STORAGE_TRIES:
                del self._troubles[tp]
                self._give_away(partition, failure)
        elif isinstance(failure, DamagedLogError):
            return self._damaged(partition, trouble, failure)
        return _pause_ms(trouble.tries)

    def _damaged(
        self, partition: HostedPartition, trouble: _Trouble, failure: DamagedLogError
    ) -> int:
        if trouble.damaged_offset != failure.offset:
            trouble.damaged_offset, trouble.damage_tries = failure.offset, 0
        trouble.damage_tries += 1
        if trouble.damage_tries >= TRIES and self._is_sound_elsewhere(partition):
            del self._troubles[partition.topic_partition]
            self._give_away(
                partition,
                KafkaError(
                    f"its log could not be repaired in {TRIES} tries, and another replica in "
                    f"sync is to lead until this broker is restarted: {failure}",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                ),
            )
        else:
            self._repair(partition, failure.offset)
        return _pause_ms(trouble.damage_tries)

    def loaded(self, tp: TopicPartition) -> None:
        trouble = self._troubles.pop(tp, None)
        if trouble is not None:
            log.info("state is read after %d failures partition=%s", trouble.tries, tp)

    def forget(self, tp: TopicPartition) -> None:
        """Drops a partition that is led elsewhere now."""
        self._troubles.pop(tp, None)

    def _log_failure(self, tp: TopicPartition, trouble: _Trouble, failure: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        text = f"{type(failure).__name__}: {failure}"
        if text == trouble.text and now_ms - trouble.logged_ms < LOG_EVERY_MS:
            return
        trouble.text, trouble.logged_ms = text, now_ms
        expected = isinstance(failure, KafkaError | OSError)
        log.error(
            "state not read, it is tried again partition=%s tries=%d: %s",
            tp, trouble.tries, text, exc_info=None if expected else failure,
        )  # fmt: skip


def _pause_ms(tries: int) -> int:
    return min(FIRST_PAUSE_MS << min(tries - 1, 10), LONGEST_PAUSE_MS)
