"""Prepares and appends the batches of producers.

    append -> nothing to prepare, none queued -> appended at once
           -> copied, queued behind those of its principal and address to its partition
                -> prepared by a thread -> appended
                -> it is large          -> prepared by a thread for large ones -> appended
                -> of unknown schemas   -> they are found -> prepared by a thread -> appended

Appends of a principal from an address to a partition are made in the order in which they came,
however long each of them is prepared (decompressed, checked, compressed anew or made columns of):
by whichever connection a producer sends. Others don't wait for them, but take turns by the bytes
that their batches decompress to. How large a batch is shows only then, so each is tried first as a
small one.

Nothing that was checked before the wait counts after it: leader epoch, lease, replicas in sync, the
producer's sequence, its transaction and the topic's settings are checked when the batch is
appended. Neither the threads nor others wait for schemas. Source: R-NET1, R-LOG7, R-LOG10.
"""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial

from storage_engine.broker.quotas.new_producers import NewProducers
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.schemas.writers import Found, Writers
from storage_engine.broker.shared_threads import SharedThreads, share_of
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.fair_queue import Share, SharedRoom
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background
from storage_engine.core.typed.foreign_format import ForeignFormat
from storage_engine.log.append_rules import (
    AppendOutcome,
    DecompressionRoom,
    Requirement,
    UnknownWritersError,
    prepare,
)
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection

PREPARED_AT_ONCE = 2
"""The number of appends, without large ones, that are prepared at a time."""

LARGE_BYTES = 4 << 20
"""An append that decompresses to more is large. Less takes some ten milliseconds."""

LARGE_AT_ONCE, LARGE_EACH = 3, 2
"""The number of large appends that are prepared at a time, and the most of one principal. Each
holds in memory the bytes that one append decompresses to."""

WAITING_MAX_BYTES = 128 << 20
"""The limit for the bytes of all waiting appends, as they were sent, which producers share: one
whose share is used up gets a retriable error. A single append may be larger."""

WAITER_BYTES = 1 << 10
"""Roughly the memory of a waiting append besides its bytes, of which it may have none."""

_Queue = tuple[TopicPartition, Share]
"""A partition, with a principal and its address."""

log = ClientLog(__name__)


class _Waiting:
    """An append in the queue of its partition."""

    __slots__ = (
        "acks",
        "in_transaction",
        "is_checked",
        "leader_epoch",
        "on_outcome",
        "partition",
        "prepared",
        "records",
        "refusal",
        "requirement",
        "share",
        "writers",
        "writers_of",
    )

    def __init__(
        self,
        partition: HostedPartition,
        records: memoryview,
        share: Share,
        *,
        acks: int,
        on_outcome: Callable[[AppendOutcome], None],
        in_transaction: bool,
        refusal: Callable[[], KafkaError | None],
    ) -> None:
        self.partition = partition
        self.share = share
        self.leader_epoch = partition.leader_epoch
        self.records = records
        self.acks = acks
        self.on_outcome = on_outcome
        self.in_transaction = in_transaction
        self.refusal = refusal
        self.requirement: Requirement | None = None
        """The requirement that the records are, or were, prepared for."""
        self.is_checked = False
        self.writers: Found | None = None
        """The schemas of its records, once they were asked for."""
        self.writers_of = -1
        """The generation of the schemas that the records are, or were, prepared by."""
        self.prepared: memoryview | KafkaError | None = None
        """The batches to append or the reason to refuse them; None until a thread is done."""

    @property
    def queue(self) -> _Queue:
        return self.partition.topic_partition, self.share[:2]


class ProducerAppends:
    """All appends of producers to the partitions of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        background: Background,
        new_producers: NewProducers,
        writers: Writers,
    ) -> None:
        self._replicas = replicas
        self._writers = writers
        self._new_producers = new_producers
        self._threads = SharedThreads(background, at_once=PREPARED_AT_ONCE)
        self._threads_for_large = SharedThreads(background, at_once=LARGE_AT_ONCE, each=LARGE_EACH)
        self._queues: dict[_Queue, deque[_Waiting]] = {}
        """The waiting appends of each principal and address to a partition, in their order."""
        self._room = SharedRoom(WAITING_MAX_BYTES)

    def append(
        self,
        partition: HostedPartition,
        records: memoryview,
        connection: Connection,
        *,
        acks: int,
        on_outcome: Callable[[AppendOutcome], None],
        in_transaction: bool = False,
        refusal: Callable[[], KafkaError | None] = lambda: None,
    ) -> None:
        """Append one request's batches for one partition, within the call where nothing has to be
        prepared; `records` need last no longer than the call.

        `in_transaction`: the coordinator knows that the producer writes to this partition in a
        transaction. `refusal` returns the error if it is not so after a wait.
        """
        requirement = partition.log.leader_appends.requirement
        is_ready = requirement is None or requirement.is_settled_at_once(records)
        if is_ready and not self._has_waiting(partition.topic_partition, connection):
            outcome = self._append(
                partition, records, connection.principal, acks=acks, in_transaction=in_transaction
            )
            on_outcome(outcome)
            return
        share = share_of(connection)
        try:
            partition.check_writable_by_producers(acks)
            self._take_room(share, len(records) + WAITER_BYTES)
        except KafkaError as failure:
            partition.note_refused(records, failure)
            on_outcome(failure.as_outcome())
            return
        waiting = _Waiting(
            partition,
            memoryview(bytearray(records)),
            share,
            acks=acks,
            on_outcome=on_outcome,
            in_transaction=in_transaction,
            refusal=refusal,
        )
        self._queues.setdefault(waiting.queue, deque()).append(waiting)
        if is_ready:
            # It needs no preparation, only its turn.
            waiting.requirement, waiting.prepared = requirement, waiting.records
            waiting.writers_of = self._writers.generation
        else:
            self._have_prepared(waiting)

    def _has_waiting(self, tp: TopicPartition, connection: Connection) -> bool:
        """Whether a new append has to wait behind others."""
        return bool(self._queues) and (tp, share_of(connection)[:2]) in self._queues

    def _append(
        self,
        partition: HostedPartition,
        records: memoryview,
        principal: Hashable,
        *,
        acks: int,
        in_transaction: bool,
        is_checked: bool = False,
    ) -> AppendOutcome:
        if in_transaction or partition.leader is None:
            return partition.append(
                records, acks=acks, in_transaction=in_transaction, is_checked=is_checked
            )
        refusal = self._new_producers.refusal(principal, partition.log.producer_state, records)
        if refusal is not None:
            partition.figures.failed_produces += 1
            partition.note_refused(records, refusal)
            return refusal
        known = len(partition.log.producer_state)
        outcome = partition.append(records, acks=acks, is_checked=is_checked)
        self._note_new(partition, principal, known)
        return outcome

    def _note_new(self, partition: HostedPartition, principal: Hashable, known: int) -> None:
        new = len(partition.log.producer_state) - known
        if new:
            self._new_producers.note(principal, new)

    def _take_room(self, share: Share, size: int) -> None:
        if not self._room.take(share, size):
            # Every client retries this error.
            raise KafkaError(
                f"{self._room.used} bytes wait to be decompressed or compressed: retry",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )

    def _have_prepared(self, waiting: _Waiting, *, is_large: bool = False) -> None:
        """Prepare the append in its turn, which may show that it is large."""
        size = len(waiting.records)
        is_large = is_large or size > LARGE_BYTES
        threads = self._threads_for_large if is_large else self._threads
        room = DecompressionRoom() if is_large else DecompressionRoom(LARGE_BYTES)
        threads.when_its_turn(
            waiting.share, partial(self._prepare, waiting, threads, room), size=size
        )

    def _prepare(self, waiting: _Waiting, threads: SharedThreads, room: DecompressionRoom) -> None:
        config = waiting.partition.log.config
        requirement = waiting.partition.log.leader_appends.requirement
        waiting.requirement = requirement
        waiting.is_checked = requirement is not None and (
            requirement.keys or requirement.schema is not None
        )
        topic_id = waiting.partition.topic_id
        writers: Found = {}
        if requirement is not None and requirement.foreign_format is ForeignFormat.AVRO:
            writers = self._writers_for(waiting)

        def work() -> memoryview:
            if requirement is None:
                return waiting.records
            return prepare(
                waiting.records,
                requirement,
                max_message_bytes=config.max_message_bytes,
                allow_transactional=waiting.in_transaction,
                topic_id=topic_id,
                room=room,
                writers=writers,
            )

        def done(prepared: memoryview) -> None:
            threads.ended(waiting.share, room.used)
            self._prepared(waiting, prepared)

        def failed(error: Exception) -> None:
            threads.ended(waiting.share, room.used)
            if room.is_exceeded and threads is self._threads:
                self._have_prepared(waiting, is_large=True)
                return
            if isinstance(error, UnknownWritersError) and waiting.writers is None:
                self._writers.find(error.ids, waiting.share, partial(self._found, waiting))
                return
            if not isinstance(error, KafkaError):
                tp = waiting.partition.topic_partition
                log.error(tp.topic, "append not prepared partition=%s", tp, exc_info=error)
                error = _unexpected(tp)
            # The error's frames hold the decompressed bytes until a garbage collection.
            self._prepared(waiting, error.as_outcome())

        threads.background.submit(work, done, failed)

    def _writers_for(self, waiting: _Waiting) -> Found:
        generation = self._writers.generation
        if waiting.writers_of != generation:
            # Ids stand for other schemas by now.
            waiting.writers, waiting.writers_of = None, generation
        known = self._writers.parsed
        return known if waiting.writers is None else waiting.writers

    def _found(self, waiting: _Waiting, found: Found | KafkaError) -> None:
        if isinstance(found, KafkaError):
            self._prepared(waiting, found.as_outcome())
            return
        waiting.writers = found
        self._have_prepared(waiting)

    def _prepared(self, waiting: _Waiting, prepared: memoryview | KafkaError) -> None:
        waiting.prepared = prepared
        self._append_in_turn(waiting.queue)

    def _append_in_turn(self, key: _Queue) -> None:
        """Append the prepared batches that have nothing before them in the queue."""
        tp, queue = key[0], self._queues.get(key)
        while queue and queue[0].prepared is not None:
            waiting = queue[0]
            if self._must_be_prepared_anew(waiting):
                waiting.prepared = None
                self._have_prepared(waiting)
                return
            # Whatever goes wrong ends with its own request: the next in the queue are others'.
            try:
                refusal = self._refusal(waiting)
                if refusal is None:
                    outcome = self._outcome(waiting)
                else:
                    outcome = refusal
                    self._note_refused(tp, waiting.records, refusal)
            except Exception as error:
                log.error(tp.topic, "append failed partition=%s", tp, exc_info=error)
                outcome = _unexpected(tp)
            queue.popleft()
            self._room.give_back(waiting.share, len(waiting.records) + WAITER_BYTES)
            if not queue:
                del self._queues[key]
            try:
                waiting.on_outcome(outcome)
            except Exception as error:
                log.error(tp.topic, "append not answered partition=%s", tp, exc_info=error)

    def _must_be_prepared_anew(self, waiting: _Waiting) -> bool:
        """Whether the topic's settings require another preparation by now."""
        requirement = waiting.partition.log.leader_appends.requirement
        if requirement is None:
            return False
        is_avro = requirement.foreign_format is ForeignFormat.AVRO
        return requirement != waiting.requirement or (
            is_avro and waiting.writers_of != self._writers.generation
        )

    def _refusal(self, waiting: _Waiting) -> KafkaError | None:
        """The error if the append may not be made any more."""
        tp = waiting.partition.topic_partition
        if self._replicas.get(tp) is not waiting.partition or (
            waiting.partition.leader_epoch != waiting.leader_epoch
        ):
            return KafkaError(
                f"{tp} got another leader epoch before the append", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return waiting.refusal()

    def _note_refused(self, tp: TopicPartition, records: memoryview, refusal: KafkaError) -> None:
        partition = self._replicas.get(tp)
        if partition is not None:
            partition.note_refused(records, refusal)

    def _outcome(self, waiting: _Waiting) -> AppendOutcome:
        if isinstance(waiting.prepared, KafkaError):
            stored = _stored_before(waiting)
            if stored is None:
                waiting.partition.note_refused(waiting.records, waiting.prepared)
                return waiting.prepared
            return stored
        assert waiting.prepared is not None
        return self._append(
            waiting.partition,
            waiting.prepared,
            waiting.share[0],
            acks=waiting.acks,
            in_transaction=waiting.in_transaction,
            is_checked=waiting.is_checked,
        )


def _stored_before(waiting: _Waiting) -> AppendOutcome | None:
    """The outcome of batches that can't be prepared now, but were stored when first sent."""
    partition = waiting.partition
    try:
        partition.check_writable_by_producers(waiting.acks)
        return partition.log.leader_appends.duplicate_of(
            waiting.records, allow_transactional=waiting.in_transaction
        )
    except KafkaError:
        return None


def _unexpected(tp: TopicPartition) -> KafkaError:
    return KafkaError(
        f"a batch for {tp} met an error in this broker, see its log", ErrorCode.UNKNOWN_SERVER_ERROR
    )
