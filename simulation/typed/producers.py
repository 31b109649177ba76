"""Producers of typed topics: of columns, of JSON records, and one whose batches nobody may take."""

import random
from uuid import UUID

from simulation.checks.ledger import InvariantViolation
from simulation.shared import Run
from simulation.typed.ledger import TypedLedger
from simulation.typed.rows import LATER, NAMES, SCHEMA, Producing, TypedRow, json_batch, typed_batch
from simulation.workload import WorkloadProducer
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import Codec

AS_JSON = 0.4
"""The share of batches that are sent as JSON records."""
GONE = 0.15
"""The share of rows that are tombstones."""
ROWS_OF_A_PRODUCER = 1 << 32
"""More rows than any producer writes: numbers of two producers are never equal."""
TIMESTAMP_MS = 1000


class TypedProducer(WorkloadProducer):
    """An idempotent producer of rows, which it sends as columns and as JSON records in turn."""

    is_idempotent = True

    def __init__(
        self,
        run: Run,
        choose: random.Random,
        partition: TopicPartition,
        *,
        number: int,
        pause_ms: int,
        ledger: TypedLedger,
    ) -> None:
        super().__init__(
            run, choose, partition, number=number, pause_ms=pause_ms, idempotent=self.is_idempotent
        )
        self._ledger = ledger
        self._written = 0
        self._rows: list[TypedRow] = []

    def next_batch(self, count: int, sent: int) -> memoryview:
        self._rows = [self._row() for _ in range(count)]
        self._ledger.sends(self._rows)
        producing = Producing(*self.producing)
        # Each batch has a time of its own, so that no two batches are the same bytes.
        time_ms = TIMESTAMP_MS + sent
        if self.choose.random() < AS_JSON:
            return json_batch(self._rows, producing, timestamp_ms=time_ms)
        return typed_batch(
            self._rows,
            self._ledger.topic_id(self.partition.topic),
            producing,
            timestamp_ms=time_ms,
            compression=self.choose.choice((Codec.NONE, Codec.LZ4, Codec.ZSTD)),
        )

    def _row(self) -> TypedRow:
        self._written += 1
        number = self.number * ROWS_OF_A_PRODUCER + self._written
        return TypedRow(self.choose.choice(NAMES), number, self.choose.random() < GONE)

    def check_acknowledged(self, offset: int) -> None:
        """Check that the rows are committed from that offset on; the bytes of JSON records are not
        those that were sent."""
        record = self.checker.record(self.partition)
        if not record.unclean:
            self._ledger.check_acknowledged(self.partition, offset, self._rows, self.name)


class WrongProducer(TypedProducer):
    """It sends batches that every leader must refuse: of another topic, or of a version of the
    schema that is not known."""

    is_idempotent = False

    def next_batch(self, count: int, sent: int) -> memoryview:
        rows = [TypedRow(NAMES[0], -number) for number in range(1, count + 1)]
        is_of_another = self.choose.random() < 0.5
        return typed_batch(
            rows,
            UUID(int=sent) if is_of_another else self._ledger.topic_id(self.partition.topic),
            Producing(),
            timestamp_ms=TIMESTAMP_MS,
            schema=SCHEMA if is_of_another else LATER,
        )

    def check_acknowledged(self, offset: int) -> None:
        raise InvariantViolation(
            "a typed topic takes only batches of its own schema",
            f"{self.partition}: a batch of another was acknowledged at offset {offset}",
        )

    def _later(self, delay_ms: int) -> None:
        # A refusal is what it wants: it does not hurry to send the next one.
        super()._later(max(delay_ms, self._pause_ms))
