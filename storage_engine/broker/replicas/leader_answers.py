"""Applies a leader's answer about one partition to the follower's log.

A follower appends what its leader sends, at the leader's offsets, and cuts its log only where
leader epochs say that the two diverge. Source: R-REP2, R-REP8, R-LOG4; KIP-595 for the divergence
in the answer.
"""

import logging

from storage_engine.broker.replicas.followed_partition import (
    Followed,
    FollowerState,
    ReplicationThrottle,
)
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogStorageError,
)
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import truncation_offset
from storage_engine.protocol.apis.fetch import FetchPartitionResponse

log = logging.getLogger(__name__)

EPOCH_RETRY_MS = 20
EPOCH_RETRY_MAX_MS = 250
"""The longest of the pauses where leader and follower do not know of the same election yet: a
matter of moments. A pause doubles, up to replica.fetch.backoff.ms at most: a leader that is to lead
a thousand partitions more gets there sooner when it isn't asked for all of them all the time. But
acks=all waits for a follower that pauses."""

_ELECTION_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class LeaderAnswers:
    """Applies the answers of one leader."""

    def __init__(
        self,
        leader: int,
        *,
        backoff_ms: int,
        clock: Clock,
        throttle: ReplicationThrottle,
    ) -> None:
        self._leader = leader
        self._backoff_ms = backoff_ms
        self._clock = clock
        self._throttle = throttle

    def take(self, followed: Followed, answer: FetchPartitionResponse) -> int:
        """Apply one partition's answer; return the bytes of its records, 0 where they could not be
        appended."""
        partition = followed.partition
        try:
            if partition.log.is_cut_short:
                # The fetch was sent before, from another offset.
                partition.log.open_again()
                return 0
            if answer.error_code:
                self._on_error(followed, answer)
                return 0
            followed.refusals = 0
            if answer.diverging_epoch is not None:
                self._truncate(partition, *answer.diverging_epoch)
                return 0
            return self._append(followed, answer)
        except LogBusyError as failure:
            if not followed.is_full:
                log.warning("paused the replication of %s: %s", partition.topic_partition, failure)
            followed.is_full = True
            self._pause(followed)
        except CorruptRecordError as failure:
            if not followed.was_damaged:
                log.error(
                    "refused bad records of %s from its leader, broker %d, at offset %d;"
                    " reporting it to the leader and fetching again: %s",
                    partition.topic_partition,
                    self._leader,
                    partition.log.log_end_offset,
                    failure,
                )
            followed.was_damaged = True
            self._pause(followed)
        except LogStorageError as failure:
            partition.fail(failure)
        except KafkaError as failure:
            log.error("can't replicate %s: %s", partition.topic_partition, failure)
            self._pause(followed)
        return 0

    def _append(self, followed: Followed, answer: FetchPartitionResponse) -> int:
        partition = followed.partition
        replica_log = partition.log
        size = 0
        if answer.records:
            records = as_view(answer.records)
            size = len(records)
            self._throttle.took(partition, size, in_sync=followed.is_caught_up)
            replica_log.follower_appends.append(records)
            partition.figures.replicated_in += size
            if followed.is_full:
                followed.is_full = False
                log.info("following %s again: there is room", partition.topic_partition)
            if followed.was_damaged:
                followed.was_damaged = False
                log.info("following %s again: undamaged", partition.topic_partition)
        end_offset = replica_log.log_end_offset
        replica_log.retention.advance_log_start(min(answer.log_start_offset, end_offset))
        partition.follower_high_watermark = max(
            min(answer.high_watermark, end_offset), replica_log.log_start_offset
        )
        followed.behind_records = max(0, answer.high_watermark - end_offset)
        is_behind = end_offset < answer.high_watermark
        followed.progress = FollowerState.BEHIND if is_behind else FollowerState.CAUGHT_UP
        replica_log.note_high_watermark(partition.follower_high_watermark)
        return size

    def _truncate(self, partition: HostedPartition, epoch: int, leader_end_offset: int) -> None:
        replica_log = partition.log
        offset = truncation_offset(
            replica_log.leader_epochs,
            log_end_offset=replica_log.log_end_offset,
            diverging_epoch=epoch,
            leader_end_offset=leader_end_offset,
        )
        log.info(
            "truncate partition=%s from=%d to=%d diverging_epoch=%d leader_end=%d",
            partition.topic_partition,
            replica_log.log_end_offset,
            offset,
            epoch,
            leader_end_offset,
        )
        if offset < partition.follower_high_watermark:
            log.warning(
                "truncate partition=%s below its high watermark %d",
                partition.topic_partition,
                partition.follower_high_watermark,
            )
            partition.follower_high_watermark = offset
        if offset < replica_log.log_start_offset:
            replica_log.truncation.truncate_fully_and_start_at(offset)
        else:
            # Lower than asked for where `offset` lies within a batch.
            end_offset = replica_log.truncation.truncate_to(offset)
            partition.follower_high_watermark = min(partition.follower_high_watermark, end_offset)

    def _on_error(self, followed: Followed, answer: FetchPartitionResponse) -> None:
        partition = followed.partition
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset >= 0:
            replica_log = partition.log
            is_empty = replica_log.log_start_offset == replica_log.log_end_offset
            if is_empty or replica_log.log_end_offset < answer.log_start_offset:
                log.warning(
                    "restart partition=%s at the leader's log start %d; was %d",
                    partition.topic_partition,
                    answer.log_start_offset,
                    replica_log.log_end_offset,
                )
                replica_log.truncation.truncate_fully_and_start_at(answer.log_start_offset)
                partition.follower_high_watermark = answer.log_start_offset
                return
        log.log(
            logging.DEBUG if followed.refusals else logging.INFO,
            "fetch partition=%s from broker %d: %s",
            partition.topic_partition,
            self._leader,
            code.name,
        )
        if code in _ELECTION_CODES:
            longest_ms = min(EPOCH_RETRY_MAX_MS, self._backoff_ms)
            pause_ms = min(EPOCH_RETRY_MS << min(followed.refusals, 10), longest_ms)
            followed.refusals += 1
            self._pause(followed, pause_ms)
        else:
            self._pause(followed)

    def _pause(self, followed: Followed, pause_ms: int | None = None) -> None:
        pause_ms = self._backoff_ms if pause_ms is None else pause_ms
        followed.resume_ms = self._clock.monotonic_ms() + pause_ms


def as_view(records: object) -> memoryview:
    return records if isinstance(records, memoryview) else memoryview(records)  # type: ignore[arg-type]
