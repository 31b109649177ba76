"""Clients of the simulated cluster: producers of each kind, and consumers that remember everything.

A client sends to any broker that claims to lead, a former leader too; every answer that it got must
stay true. Source: R-REP3, R-REP5, R-REP6, R-CLI7.
"""

import random
from collections.abc import Callable, Sequence

from simulation.checks.ledger import InvariantViolation, PartitionRecord
from simulation.shared import Run
from simulation.world.network import CLIENT, SimulatedTransport, endpoint_of
from simulation.world.requests import fetch_request, make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers, read_header
from storage_engine.protocol.typed.projection import TypedWant

PRODUCE_VERSION = 8
FETCH_VERSION = 11
BROKER_TIMEOUT_MS = 2000
"""How long a leader may wait for its followers."""
CLIENT_TIMEOUT_MS = 3000
RETRY_MS = 150
BEGINS_ANEW = 0.03
"""How often a reader goes back to the start of a partition."""
MAX_RECORDS = 3
"""The most records of a batch."""
FIRST_PRODUCER_ID = 1 << 40
"""The first of the producer ids that no broker has given out: brokers count from 0."""

_SEQUENCE_BROKEN = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class WorkloadClient:
    """The common part of producers and consumers."""

    def __init__(self, run: Run, choose: random.Random, name: str) -> None:
        self.cluster = run.cluster
        self.checker = run.checker
        self.choose = choose
        self.name = name
        self._transport = SimulatedTransport(run.cluster.network, CLIENT)

    def leader(self, tp: TopicPartition) -> int | None:
        """Return mostly the newest of the brokers that claim to lead; sometimes any of them."""
        found = []
        for broker in self.cluster.brokers:
            if broker.serving:
                partition = broker.replicas.get(tp)
                if partition is not None and partition.leader is not None:
                    found.append((partition.leader_epoch, broker.id))
        if not found:
            return None
        if len(found) > 1 and self.choose.random() < 0.3:
            return self.choose.choice(found)[1]
        return max(found)[1]

    def epoch_of(self, broker: int, tp: TopicPartition) -> int:
        """Return the leader epoch under which a broker leads, -1 when it does not."""
        if not self.cluster[broker].serving:
            return -1
        partition = self.cluster[broker].replicas.get(tp)
        return partition.leader_epoch if partition is not None and partition.leader else -1

    def request(
        self,
        broker: int,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        on_reply: Callable[[Resp | TransportError], None] | None = None,
        *,
        channel: str = "",
    ) -> None:
        """Send a request; `channel` names another connection than the usual one."""
        self._transport.request(
            endpoint_of(broker),
            channel or self.name,
            spec,
            version,
            message,
            timeout_ms=CLIENT_TIMEOUT_MS,
            on_reply=on_reply,
        )


def check_acknowledged(record: PartitionRecord, offset: int, crc: int, name: str) -> None:
    """Check that a batch that was acknowledged by all is committed at that offset, on enough
    replicas."""
    if record.unclean:
        return
    note = record.committed_at(offset)
    if note is None or note.crc != crc:
        raise InvariantViolation(
            "what acks=all acknowledged is committed",
            f"{record.partition} at {offset}: {name}'s batch, committed is up to"
            f" {record.committed.end_offset}",
        )
    holders = record.holders(note)
    if holders < min(record.min_in_sync, len(record.assigned)):
        raise InvariantViolation(
            "acks=all means min.insync.replicas",
            f"{record.partition} at {offset} is on {holders} replicas only",
        )


class WorkloadProducer(WorkloadClient):
    """Sends one batch after another to one partition.

    With a producer id it sends a batch again, under the same sequence, until it is acknowledged;
    without, it goes on with the next after an error.
    """

    def __init__(
        self,
        run: Run,
        choose: random.Random,
        partition: TopicPartition,
        *,
        number: int,
        pause_ms: int,
        acks: int = -1,
        idempotent: bool = True,
    ) -> None:
        super().__init__(run, choose, f"producer {number}")
        self.partition = partition
        self.acks = acks
        self.acknowledged = 0
        self.acknowledged_ms = -1
        """When the newest acknowledgement came."""
        self.number = number
        self._producer_id = FIRST_PRODUCER_ID + number if idempotent else -1
        self._producer_epoch = 0
        self._pause_ms = pause_ms
        self._sequence = 0
        self._sent = 0
        self._batch: memoryview | None = None
        self._count = 0

    def run(self) -> None:
        """Send the next batch, or the last again."""
        leader = self.leader(self.partition)
        if leader is None:
            self._later(RETRY_MS)
            return
        if self._batch is None:
            self._batch = self._make_batch()
        batch = memoryview(bytearray(self._batch))
        tp = self.partition
        request = produce_request(
            tp.topic, tp.partition, batch, acks=self.acks, timeout_ms=BROKER_TIMEOUT_MS
        )
        if self.acks == 0:
            self.request(leader, PRODUCE, PRODUCE_VERSION, request)
            self._go_on()
        else:
            epoch = self.epoch_of(leader, tp)
            self.request(
                leader,
                PRODUCE,
                PRODUCE_VERSION,
                request,
                lambda reply: self._on_reply(leader, epoch, reply),
            )

    def _make_batch(self) -> memoryview:
        self._count = self.choose.randint(1, MAX_RECORDS)
        self._sent += 1
        return self.next_batch(self._count, self._sent)

    def next_batch(self, count: int, sent: int) -> memoryview:
        """Return the batch that is sent next, with so many records; `sent`: its number."""
        return make_batch(count, payload=b"%d/%d" % (self.number, sent), producer=self.producing)

    @property
    def producing(self) -> tuple[int, int, int]:
        """Producer id, epoch and sequence of the next batch."""
        if self._producer_id < 0:
            return -1, -1, -1
        return self._producer_id, self._producer_epoch, self._sequence

    def _on_reply(self, leader: int, epoch: int, reply: ProduceResponse | TransportError) -> None:
        if isinstance(reply, TransportError):
            self._failed()
            return
        (answer,) = reply.partitions
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            # A leader that has been replaced, without being aware of it, may not have the newest
            # batches.
            record = self.checker.record(self.partition)
            state = record.state
            leads = (
                state is not None
                and (state.leader, state.leader_epoch) == (leader, epoch)
                and self.epoch_of(leader, self.partition) == epoch
            )
            if self._producer_id >= 0 and code in _SEQUENCE_BROKEN and record.unclean:
                self._begin_anew()
                return
            if leads and self._producer_id >= 0 and code in _SEQUENCE_BROKEN:
                raise InvariantViolation(
                    "an idempotent producer's batches are committed once and in order",
                    f"{self.partition}: {self.name} got {code.name} for sequence {self._sequence}",
                )
            self._failed()
            return
        assert self._batch is not None
        if self.acks == -1:
            self.check_acknowledged(answer.base_offset)
        self.acknowledged += 1
        self.acknowledged_ms = self.cluster.loop.now_ms
        self._go_on()

    def check_acknowledged(self, offset: int) -> None:
        """Check that a batch acknowledged by all is committed, with this content, on enough
        replicas."""
        assert self._batch is not None
        record = self.checker.record(self.partition)
        check_acknowledged(record, offset, read_header(self._batch).crc, self.name)

    def _go_on(self) -> None:
        self._sequence += self._count
        self._batch = None
        self._later(int(self.choose.expovariate(1 / self._pause_ms)))

    def _begin_anew(self) -> None:
        """Begin again after acknowledged batches were lost, as they may be: the next epoch begins
        with sequence 0 (KIP-360)."""
        self._producer_epoch += 1
        self._sequence = 0
        self._batch = None
        self._later(RETRY_MS)

    def _failed(self) -> None:
        if self._producer_id < 0:
            self._batch = None
        self._later(RETRY_MS)

    def _later(self, delay_ms: int) -> None:
        self.cluster.loop.call_later(delay_ms, self.run)


class Workload:
    """Topics of a run, their clients, and what must be true of them. Each may be left out, and
    chooses from generators of its own: a seed without it is the same run as before, unless its
    topics change what brokers do."""

    ends = "clients come to an end"
    """The promise that nothing is left within a bound."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.producers: list[WorkloadProducer] = []
        """The producers that are acknowledged once more in the end."""

    def create_topics(self) -> None: ...

    def start(self) -> None:
        """Start the clients."""

    def finish(self) -> None:
        """Have clients begin nothing new."""

    def left(self) -> list[str]:
        """Return what is still to come after `finish`."""
        return []

    def check_end(self) -> None:
        """Check what must be true when all clients have done what they can."""

    def counts(self) -> dict[str, int]:
        """Return the counts of what was done in the run."""
        return {}


class WorkloadReader(WorkloadClient):
    """Reads partitions in turn, each from its start again once in a while."""

    committed_only = False
    fetch_version = FETCH_VERSION

    def __init__(
        self,
        run: Run,
        choose: random.Random,
        name: str,
        partitions: Sequence[TopicPartition],
        *,
        pause_ms: int,
    ) -> None:
        super().__init__(run, choose, name)
        self._partitions = partitions
        self.positions = dict.fromkeys(partitions, 0)
        self.stays = False
        """True when it stays at its position from now on."""
        self._pause_ms = pause_ms

    def run(self) -> None:
        tp = self.choose.choice(self._partitions)
        leader = self.leader(tp)
        if leader is None:
            self._later()
            return
        if not self.stays and self.choose.random() < BEGINS_ANEW:
            self.positions[tp] = 0
        offset = self.positions[tp]
        epoch = self.epoch_of(leader, tp)
        wait_ms = self.choose.choice((0, 0, 500))
        self.request(
            leader,
            FETCH,
            self.fetch_version,
            fetch_request(
                *tp,
                offset,
                wait_ms=wait_ms,
                committed_only=self.committed_only,
                typed_want=self.wanted(),
            ),
            lambda reply: self._on_reply(tp, leader, epoch, offset, reply),
        )

    def wanted(self) -> TypedWant | None:
        """Return what the next fetch asks for of a typed topic."""
        return None

    def take(
        self, tp: TopicPartition, leader: int, epoch: int, answer: FetchPartitionResponse
    ) -> None:
        """Checks what a leader served, and moves the position. `epoch`: the leader's, when it was
        asked."""
        raise NotImplementedError

    def _on_reply(
        self,
        tp: TopicPartition,
        leader: int,
        epoch: int,
        offset: int,
        reply: FetchResponse | TransportError,
    ) -> None:
        self._later()
        if isinstance(reply, TransportError) or reply.error_code:
            return
        (answer,) = reply.partitions
        if not answer.error_code:
            self.take(tp, leader, epoch, answer)
        elif ErrorCode.of(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(tp, leader, epoch, offset)

    def _out_of_range(self, tp: TopicPartition, leader: int, epoch: int, offset: int) -> None:
        """Check that the leader may refuse the offset: one that was elected cleanly has all records
        that any consumer has seen; one that has been replaced need not."""
        record = self.checker.record(tp)
        if record.unclean:
            self.positions[tp] = 0
        elif record.state is not None and record.state.leader_epoch == epoch:
            raise InvariantViolation(
                "what a consumer has read stays",
                f"{tp}: broker {leader} says that offset {offset} is out of range",
            )

    def _later(self) -> None:
        delay_ms = int(self.choose.expovariate(1 / self._pause_ms))
        self.cluster.loop.call_later(delay_ms, self.run)


def records_of(answer: FetchPartitionResponse) -> memoryview:
    records = answer.records or b""
    assert isinstance(records, bytes | memoryview), "they come from a frame"
    return memoryview(records)


class WorkloadConsumer(WorkloadReader):
    """Reads all that is below the high watermark."""

    def __init__(
        self,
        run: Run,
        choose: random.Random,
        partitions: Sequence[TopicPartition],
        *,
        number: int,
        pause_ms: int,
    ) -> None:
        super().__init__(run, choose, f"consumer {number}", partitions, pause_ms=pause_ms)
        self._high_watermarks: dict[tuple[TopicPartition, int, int], int] = {}
        """The high watermark in the last answer, by partition, broker and leader epoch."""

    def take(
        self, tp: TopicPartition, leader: int, epoch: int, answer: FetchPartitionResponse
    ) -> None:
        if self.epoch_of(leader, tp) == epoch:
            self._check_high_watermark(tp, leader, epoch, answer.high_watermark)
        for _, header in iter_headers(records_of(answer)):
            self._check_served(tp, header, answer.high_watermark)
            self.positions[tp] = max(self.positions[tp], header.next_offset)

    def _check_high_watermark(
        self, tp: TopicPartition, leader: int, epoch: int, high_watermark: int
    ) -> None:
        if self.checker.record(tp).unclean:
            return
        key = tp, leader, epoch
        if high_watermark < self._high_watermarks.get(key, 0):
            raise InvariantViolation(
                "consumers never see a leader's high watermark go back",
                f"{tp} on broker {leader}: from {self._high_watermarks[key]} to {high_watermark}",
            )
        self._high_watermarks[key] = high_watermark

    def _check_served(self, tp: TopicPartition, header: BatchHeader, high_watermark: int) -> None:
        if header.next_offset > high_watermark:
            raise InvariantViolation(
                "consumers see only what is below the high watermark",
                f"{tp} at {header.base_offset}, high watermark {high_watermark}",
            )
        if not self.checker.record(tp).unclean:
            self.checker.record(tp).check_served(header)
