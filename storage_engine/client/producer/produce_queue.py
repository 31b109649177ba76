r"""The batches of one partition on their way to its leader, in order.

    waiting -> in flight -> delivered
       ^           \-> set aside (retriable error) -+
       +------- when nothing is in flight ----------+

A batch is sent again only after everything sent with it is answered, in the first order and with
the same sequence numbers, so that a retry neither reorders nor doubles (R-CLI7). Without
idempotence one batch at a time is in flight. With it, too, until the leader has a first batch of
the producer's identity: Kafka takes any sequence number from a producer that it does not know, so a
second batch could be taken where the first was refused, and the first never could be.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.records.record_batch import advance_sequence, patch_producer

IN_FLIGHT_PER_PARTITION = 5
"""The number of a producer's batches that a leader remembers, to recognize repetitions."""


OnDone = Callable[[int, HeadraceError | None], None]
"""Called once with the outcome of a batch: its base offset (-1 when the leader did not return it),
or the error."""


class ProducerIdentity(NamedTuple):
    """An idempotent producer's identity."""

    producer_id: int
    epoch: int
    transactional: bool = False
    """Whether all that it writes is one transaction."""


NEWEST_OF_ENLISTED = 10
"""The newest version of Produce in transactions whose partitions the client enlists by itself."""


class OpenTransaction(Protocol):
    """A transaction that batches can belong to, such as `micro_batches.MicroBatchMember`."""

    transactional_id: str
    producer_id: int
    epoch: int

    def enlist(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction before the first batch for them. Raises KafkaError
        when the transaction is not open any more."""
        ...


@dataclass(slots=True, kw_only=True)
class PartitionDelivery:
    """The acknowledged records of one partition. Offsets are -1 where the leader did not say (with
    acks=0, or for a repetition)."""

    first_offset: int = -1
    last_offset: int = -1
    batches: int = 0
    records: int = 0

    def add(self, base_offset: int, record_count: int) -> None:
        """Records that one more batch is acknowledged."""
        self.batches += 1
        self.records += record_count
        if base_offset >= 0:
            if self.first_offset < 0:
                self.first_offset = base_offset
            self.last_offset = max(self.last_offset, base_offset + record_count - 1)


class PendingBatch:
    """A batch until its delivery is known."""

    __slots__ = (
        "data",
        "done",
        "expires_at_ms",
        "number",
        "perhaps_appended",
        "record_count",
        "tries",
    )

    def __init__(
        self,
        data: bytearray | memoryview,
        record_count: int,
        number: int,
        expires_at_ms: int,
        done: OnDone | None,
    ) -> None:
        self.data = data
        self.record_count = record_count
        # Place in the order of the partition's batches.
        self.number = number
        self.expires_at_ms = expires_at_ms
        self.done = done
        # How often it was sent, and failed for a reason of its own.
        self.tries = 0
        # An attempt ended in a way that does not tell whether the leader has it.
        self.perhaps_appended = False


class PartitionQueue:
    """The state of one partition."""

    __slots__ = (
        "_attempts",
        "_count",
        "_delivered_to",
        "_identity_is_known",
        "_leader_is_known",
        "_producer",
        "_sequence",
        "_set_aside",
        "broker_id",
        "in_flight",
        "last_error",
        "renew_producer",
        "retry_at_ms",
        "tp",
        "waiting",
    )

    def __init__(self, tp: TopicPartition, producer: ProducerIdentity | None) -> None:
        self.tp = tp
        self._producer = producer
        self._sequence = 0
        self._count = 0
        # The highest number that the leader has.
        self._delivered_to = -1
        # Whether a leader has a batch with the present producer id and epoch.
        self._identity_is_known = False
        self._attempts = 0
        # The broker that refused a batch has said who leads: there is nothing to wait for.
        self._leader_is_known = False
        self.waiting: deque[PendingBatch] = deque()
        self.in_flight: deque[PendingBatch] = deque()
        self._set_aside: list[PendingBatch] = []
        # The broker that the batches in flight are with.
        self.broker_id = -1
        self.retry_at_ms = 0
        # The leader does not know the producer id any more, or a batch was given up and has left a
        # gap; nothing may be sent as new before there is a new id.
        self.renew_producer = False
        self.last_error = ""

    def append(
        self,
        data: bytearray | memoryview,
        record_count: int,
        expires_at_ms: int,
        done: OnDone | None = None,
    ) -> None:
        batch = PendingBatch(data, record_count, self._count, expires_at_ms, done)
        self._count += 1
        self._stamp(batch)
        self.waiting.append(batch)

    def _stamp(self, batch: PendingBatch) -> None:
        if self._producer is not None:
            patch_producer(
                batch.data,
                0,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=self._sequence,
                transactional=self._producer.transactional,
            )
            self._sequence = advance_sequence(self._sequence, batch.record_count)

    def use_producer(self, producer: ProducerIdentity) -> None:
        """Start a new sequence with everything that waits."""
        assert not self.in_flight
        self._producer = producer
        self._sequence = 0
        self._identity_is_known = False
        self.renew_producer = False
        for batch in self.waiting:
            self._stamp(batch)

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.in_flight)

    @property
    def recovering(self) -> bool:
        """Whether a batch in flight has failed, and batches sent after it are not all answered
        yet."""
        return bool(self._set_aside)

    def may_send(self, now_ms: int, *, one_at_a_time: bool) -> bool:
        """Whether the first batch that waits may go to the leader now."""
        if not self.waiting or self._set_aside or now_ms < self.retry_at_ms:
            return False
        if not self.in_flight:
            return True
        if self.renew_producer or (self._producer is not None and not self._identity_is_known):
            return False
        # Not the number in flight but the distance counts: the oldest one, which may be a
        # repetition, must be among the batches that the leader remembers when it arrives.
        distance = self.waiting[0].number - self.in_flight[0].number
        return not one_at_a_time and distance < IN_FLIGHT_PER_PARTITION

    def start_first(self, broker_id: int) -> PendingBatch:
        """Take the first batch that waits, which is in flight from now on."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        self.broker_id = broker_id
        return batch

    def delivered(self, batch: PendingBatch) -> None:
        self.in_flight.remove(batch)
        self._delivered_to = max(self._delivered_to, batch.number)
        self._identity_is_known = True
        self._attempts = 0
        self._settle()

    def overtaken(self, batch: PendingBatch) -> bool:
        """Whether the leader has taken a later batch without this one."""
        return batch.number < self._delivered_to

    def first_expired(self, now_ms: int) -> PendingBatch | None:
        """The first batch that waits, where it has waited too long and nothing is in flight."""
        batch = self.waiting[0] if self.waiting and not self.in_flight else None
        return batch if batch is not None and batch.expires_at_ms <= now_ms else None

    def given_up(self, batch: PendingBatch) -> None:
        """Drop the batch: it is not sent again. Later batches begin a new sequence under another
        producer id."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        self.renew_producer |= self._producer is not None
        self._settle()

    def failed(
        self,
        batch: PendingBatch,
        error: str,
        *,
        perhaps_appended: bool,
        leader_is_known: bool = False,
    ) -> None:
        """Set the batch aside, to be sent again once everything in flight is answered.
        `perhaps_appended`: the leader may have it. `leader_is_known`: the error came with the new
        leader, so that no pause is needed."""
        self._leader_is_known |= leader_is_known
        self.in_flight.remove(batch)
        batch.perhaps_appended |= perhaps_appended
        self._set_aside.append(batch)
        self.last_error = error
        self._settle()

    def _settle(self) -> None:
        """When nothing is in flight any more, failed batches go back to the front of the queue, in
        order."""
        if self.in_flight or not self._set_aside:
            return
        self._set_aside.sort(key=lambda batch: batch.number, reverse=True)
        self.waiting.extendleft(self._set_aside)
        self._set_aside.clear()
        if self._leader_is_known:
            # Each time under a higher leader epoch, so not again and again.
            self._leader_is_known = False
            self.retry_at_ms = 0
            return
        self.retry_at_ms = monotonic_ms() + pause_ms(self._attempts)
        self._attempts += 1
