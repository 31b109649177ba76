"""Reads the partitions of a fetch once, for a consumer or a follower, without waiting.

Records never pass through Python; a read returns a LogSlice, or for a typed topic the form that
`typed_reads` makes of one. Consumers get the records below the high watermark, or with
read_committed below the last stable offset, and the aborted transactions among them. Followers get
the whole log, after a check that their own does not diverge.
Source: R-REP2, R-REP5, R-REP8, KIP-98, KIP-392, KIP-595.
"""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from storage_engine.broker.cluster.registration import leaving
from storage_engine.broker.replicas.followed_partition import ReplicationThrottle
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.rack_reads import NO_PREFERENCE, RackReads
from storage_engine.broker.requests.typed_reads import (
    FoundRecords,
    LookBudget,
    read_for_consumer,
)
from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import NONE_THROTTLED, divergence
from storage_engine.core.replication.partition import SessionClock
from storage_engine.log.files.segment_files import ColdBytesError
from storage_engine.protocol.apis.fetch import (
    ANY_REPLICA_ID,
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
)

READ_COMMITTED = 1
"""The isolation level of a request that may see ended transactions only."""


class FetchRead:
    """The answers for the partitions of a request, and whether they may be sent at once."""

    __slots__ = ("bytes_readable", "cold", "failed", "is_cut", "partitions", "room")

    def __init__(self, room: int = 0) -> None:
        self.room = room
        """The bytes left for further partitions."""
        self.partitions: list[FetchPartitionResponse] = []
        self.bytes_readable = 0
        self.failed = False
        """True after an error, a divergence or a preferred replica: answer now."""
        self.is_cut = False
        """True when a filter has skipped so much that the next fetch gets the rest: answer now."""
        self.cold: list[tuple[HostedPartition, ColdBytesError, int]] = []
        """Reads whose beginning or end could not be found without the disk, with the number of
        bytes wanted."""

    def is_enough(self, request: FetchRequest) -> bool:
        """Whether the request is to be answered now: it allows no wait, has enough bytes, an error
        or a cut, or must read from a disk."""
        return (
            request.max_wait_ms <= 0
            or self.bytes_readable >= request.min_bytes
            or self.failed
            or self.is_cut
            or bool(self.cold)
        )


class PartitionReader:
    """Reads the partitions of FetchRequests."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        is_current: Callable[[BrokerId, int], bool],
        clock: Clock,
        throttle: ReplicationThrottle,
        on_damage: Callable[[HostedPartition, int, str], None],
        rack_reads: RackReads | None = None,
    ) -> None:
        self._throttle = throttle
        self._replicas = replicas
        self._clock = clock
        self._is_current = is_current
        """(broker id, incarnation) -> whether it is the registered one, and not leaving (an
        incarnation in controlled shutdown calls itself otherwise, see `leaving`)."""
        self._on_damage = on_damage
        """Called with a partition that has bad bytes, their offset, and how they were found."""
        self._rack_reads = rack_reads
        """None when consumers read only from leaders."""

    def read(
        self,
        request: FetchRequest,
        partitions: Iterable[FetchPartition] | None = None,
        result: FetchRead | None = None,
        *,
        wait: bool = False,
    ) -> FetchRead:
        """Reads each partition once; the first one with data gets a batch even if it is over the
        limit. Reads that would wait for a disk are left to `FetchRead.cold`, unless `wait`.

        `partitions`: some of the request's; all by default. `result`: the read of the partitions
        before them, to which the answers are added.
        """
        result = FetchRead(request.max_bytes) if result is None else result
        budget = LookBudget()
        for wanted in request.partitions if partitions is None else partitions:
            answer = self._read_partition(request, wanted, result, budget, wait)
            result.partitions.append(answer)
            if (
                answer.error_code
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica != NO_PREFERENCE
            ):
                result.failed = True
            if answer.records is not None:
                size = len(answer.records)
                result.bytes_readable += size
                result.room = result.room - size if size < result.room else 0
        if budget.is_used_up:
            result.is_cut = True
        return result

    def note_progress(
        self,
        request: FetchRequest,
        partitions: Sequence[FetchPartition],
        session: SessionClock | None = None,
    ) -> bool:
        """Apply the offsets that a follower's fetch reports for these partitions; called before
        the first read. Only the registered incarnation of a broker may report them: a forged report
        could have records acknowledged that no replica holds.

        `session`: the fetch speaks for the settled partitions of this session, too. True where the
        follower has everything, so that a read would find nothing.
        """
        if request.replica_id < 0:
            return False
        replica = BrokerId(request.replica_id)
        incarnation = BrokerEpoch(request.replica_epoch)
        eligible = self._is_current(replica, incarnation)
        if not eligible and not self._is_current(replica, leaving(incarnation)):
            return False
        if session is not None:
            session.fetched_ms = self._clock.monotonic_ms()
        caught_up = 0
        for wanted in partitions:
            partition = self._replicas.get(TopicPartition(wanted.topic, wanted.partition))
            if partition is None or partition.leader is None:
                continue
            if request.replica_id not in partition.assigned_replicas:
                continue
            if wanted.current_leader_epoch not in (-1, partition.leader_epoch):
                continue
            is_at_end, agrees = _standing(partition, wanted)
            caught_up += is_at_end
            if wanted.was_damaged:
                self._on_damage(partition, wanted.fetch_offset, "a follower was sent a bad batch")
            partition.note_follower_log_start(request.replica_id, wanted.log_start_offset)
            if wanted.fetch_offset > partition.log.log_end_offset:
                continue
            if agrees:
                partition.follower_fetched(
                    replica,
                    wanted.fetch_offset,
                    eligible=eligible,
                    broker_epoch=incarnation,
                    session=session,
                )
        return caught_up == len(partitions)

    def note_sent(self, request: FetchRequest, answers: Sequence[FetchPartitionResponse]) -> None:
        """Count the bytes that are about to be sent; bytes to a follower also for the throttle."""
        for answer in answers:
            if answer.records is None:
                continue
            partition = self._replicas.get(TopicPartition(answer.topic, answer.partition))
            if partition is None:
                continue
            if request.replica_id < 0:
                partition.figures.bytes_out += len(answer.records)
                continue
            partition.figures.replicated_out += len(answer.records)
            if self._throttle.counts_sent(partition, request.replica_id):
                self._throttle.sent(len(answer.records))

    def _read_partition(
        self,
        request: FetchRequest,
        wanted: FetchPartition,
        result: FetchRead,
        budget: LookBudget,
        wait: bool,
    ) -> FetchPartitionResponse:
        tp = TopicPartition(wanted.topic, wanted.partition)
        room, first = result.room, result.bytes_readable == 0
        try:
            if wanted.topic_id is not None:
                self._check_id(tp, wanted.topic_id)
            if request.replica_id >= 0:
                known = self._replicas.get(tp)
                if known is not None and _is_at_end(known, wanted):
                    return _nothing_new(known, wanted)
                is_led = known is not None and known.leader is not None
                if known is None or not is_led or wanted.current_leader_epoch != known.leader_epoch:
                    known = self._replicas.leader(tp, wanted.current_leader_epoch)
                partition = known
            else:
                partition = self._replica(request, wanted, tp)
                preferred = self._preferred(request, wanted, partition)
                if preferred != NO_PREFERENCE:
                    return _elsewhere(partition, request, preferred)
            try:
                if (
                    request.replica_id >= 0
                    and partition.config.leader_throttled is not NONE_THROTTLED
                    and self._throttle.holds_back(partition, request.replica_id)
                ):
                    room, first = 0, False
                return _read(partition, request, wanted, room, budget, first=first, wait=wait)
            except ColdBytesError as cold:
                result.cold.append((partition, cold, min(wanted.partition_max_bytes, room)))
                # As if there were no records: a follower applies the rest of the answer.
                return _read(partition, request, wanted, 0, budget, first=False, wait=wait)
        except CorruptRecordError as damage:
            return self._damaged(wanted, tp, damage)
        except LogStorageError as failure:
            known = self._replicas.get(tp)
            if known is not None:
                known.fail(failure)
            return FetchPartitionResponse(wanted.topic, wanted.partition, int(failure.code))
        except KafkaError as failure:
            return self._refusal(wanted, tp, failure.code)

    def _check_id(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Check that the topic has the client's topic id. Raises KafkaError."""
        if not tp.topic:
            raise KafkaError("no topic has that id", ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._replicas.get(tp)
        if partition is not None and partition.topic_id != topic_id:
            raise KafkaError(
                f"{tp} is of another topic of that name", ErrorCode.INCONSISTENT_TOPIC_ID
            )

    def _replica(
        self, request: FetchRequest, wanted: FetchPartition, tp: TopicPartition
    ) -> HostedPartition:
        """The replica here, if it may answer this client. Raises KafkaError."""
        if request.replica_id == ANY_REPLICA_ID:
            return self._replicas.in_service(tp)
        if self._rack_reads is not None and _is_of_a_rack(request):
            partition = self._replicas.in_service(tp)
            if partition.leader is None:
                partition.check_leader_epoch(wanted.current_leader_epoch)
                self._rack_reads.check_follower(partition, request.rack_id, wanted.fetch_offset)
                return partition
        return self._replicas.leader(tp, wanted.current_leader_epoch)

    def _preferred(
        self, request: FetchRequest, wanted: FetchPartition, partition: HostedPartition
    ) -> int:
        if self._rack_reads is None or partition.leader is None or not _is_of_a_rack(request):
            return NO_PREFERENCE
        return self._rack_reads.preferred(partition, request.rack_id, wanted.fetch_offset)

    def _damaged(
        self, wanted: FetchPartition, tp: TopicPartition, damage: CorruptRecordError
    ) -> FetchPartitionResponse:
        """Have bad bytes repaired, unless that is under way already; return the refusal."""
        partition, offset = self._replicas.get(tp), wanted.fetch_offset
        if partition is not None and not any(
            bad.start_offset <= offset < bad.end_offset for bad in partition.log.damaged
        ):
            self.note_damage(partition, offset, damage)
        return self._refusal(wanted, tp, damage.code)

    def note_damage(
        self, partition: HostedPartition, offset: int, damage: CorruptRecordError
    ) -> None:
        """Have a batch repaired that a reader could not be given."""
        self._on_damage(partition, offset, f"a reader can't be given a batch: {damage}")

    def _refusal(
        self, wanted: FetchPartition, tp: TopicPartition, code: ErrorCode
    ) -> FetchPartitionResponse:
        """The answer with the error; OFFSET_OUT_OF_RANGE has the bounds of the log."""
        refusal = FetchPartitionResponse(wanted.topic, wanted.partition, int(code))
        partition = self._replicas.get(tp)
        if partition is None:
            return refusal
        partition.figures.failed_fetches += 1
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return refusal._replace(
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log.log_start_offset,
            )
        return refusal


def has_news(wanted: FetchPartition, partition: HostedPartition) -> bool:
    """False where a follower's waiting fetch surely has nothing new in the partition."""
    return (
        partition.leader is None
        or wanted.current_leader_epoch != partition.leader_epoch
        or wanted.fetch_offset != partition.log.log_end_offset
    )


def _is_at_end(partition: HostedPartition, wanted: FetchPartition) -> bool:
    """Whether a follower has everything, as is usual for most partitions. May raise KafkaError, as
    `_diverging`."""
    return not has_news(wanted, partition) and (
        wanted.last_fetched_epoch == partition.log.latest_epoch
        or _diverging(partition, wanted, is_follower=True) is None
    )


def _standing(partition: HostedPartition, wanted: FetchPartition) -> tuple[bool, bool]:
    """Whether a follower has everything, and whether its log agrees with this one."""
    try:
        if _is_at_end(partition, wanted):
            return True, True
        return False, _diverging(partition, wanted, is_follower=True) is None
    except KafkaError:
        return False, False


def _nothing_new(partition: HostedPartition, wanted: FetchPartition) -> FetchPartitionResponse:
    """The answer to a follower that has everything, without a read."""
    return FetchPartitionResponse(
        wanted.topic,
        wanted.partition,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.log_start_offset,
    )


def _is_of_a_rack(request: FetchRequest) -> bool:
    return request.replica_id == CONSUMER_REPLICA_ID and request.rack_id != ""


def _elsewhere(
    partition: HostedPartition, request: FetchRequest, preferred: int
) -> FetchPartitionResponse:
    """The answer without records that names another replica to read from."""
    return FetchPartitionResponse(
        partition.topic_partition.topic,
        partition.topic_partition.partition,
        0,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
        [] if request.isolation_level == READ_COMMITTED else None,
        preferred,
    )


def _read(
    partition: HostedPartition,
    request: FetchRequest,
    wanted: FetchPartition,
    room: int,
    budget: LookBudget,
    *,
    first: bool,
    wait: bool,
) -> FetchPartitionResponse:
    log = partition.log
    high_watermark = partition.high_watermark
    if wanted.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRangeError(
            log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        )
    is_follower = request.replica_id >= 0
    partition.figures.fetches += not is_follower
    # Followers compute their own.
    last_stable_offset = -1 if is_follower else partition.last_stable_offset
    is_isolated = request.isolation_level == READ_COMMITTED and not is_follower
    diverging = _diverging(partition, wanted, is_follower=is_follower)
    records: FoundRecords | None = None
    aborted: list[tuple[int, int]] | None = [] if is_isolated else None
    if diverging is None:
        limit = min(wanted.partition_max_bytes, room)
        if limit > 0 or first:
            if is_follower:
                records = log.reads.read(
                    wanted.fetch_offset, max_bytes=limit, at_least_one=first, wait=wait
                )
            else:
                records = read_for_consumer(
                    log,
                    wanted,
                    budget,
                    max_bytes=limit,
                    max_offset=last_stable_offset if is_isolated else high_watermark,
                    at_least_one=first,
                    wait=wait,
                )
            if is_isolated and records is not None:
                found = log.reads.aborted_transactions(wanted.fetch_offset, records.end_offset)
                aborted = [(each.producer_id, each.first_offset) for each in found]
    return FetchPartitionResponse(
        wanted.topic,
        wanted.partition,
        0,
        high_watermark,
        last_stable_offset,
        log.log_start_offset,
        aborted,
        -1,
        records,
        diverging,
    )


def _diverging(
    partition: HostedPartition, wanted: FetchPartition, *, is_follower: bool
) -> tuple[int, int] | None:
    if wanted.last_fetched_epoch < 0:
        return None
    log = partition.log
    if wanted.last_fetched_epoch == log.latest_epoch and wanted.fetch_offset <= log.log_end_offset:
        # The case of nearly every follower: the latest epoch ends where the log does.
        return None
    return divergence(
        log.leader_epochs,
        log_end_offset=log.log_end_offset,
        fetch_offset=wanted.fetch_offset,
        last_fetched_epoch=wanted.last_fetched_epoch,
        log_start_offset=log.log_start_offset if is_follower else 0,
    )
