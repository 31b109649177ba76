"""A task attempt of the exactly-once sink: it joins its micro-batch, leaves out the rows whose
origins the sink already has, and writes the rest in a transaction of its own.

Source: R-SPARK2, R-SPARK3.
"""

from simulation.transactions import sink_requests
from simulation.transactions.actor import Actor, Then
from simulation.transactions.asker import World
from simulation.transactions.copied_rows import CopiedRows, Ranges
from simulation.transactions.ledger import MicroBatch
from simulation.transactions.sink_requests import BatchName, MemberId
from simulation.transactions.state_log import state_partition_of
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import member_transactional_id
from storage_engine.protocol.apis.join_batch import JoinBatchResponse

SINK = "sink"
TIMEOUT_MS = 3000


class Attempt(Actor):
    """One attempt of one task of one driver."""

    def __init__(
        self, world: World, batch: MicroBatch, name: str, copied: CopiedRows, rows: Ranges
    ) -> None:
        """`rows` come from a source that other queries copy, too."""
        super().__init__(world, member_transactional_id(SINK), name)
        self._batch = batch
        self._copied = copied
        self._rows = rows
        self.transaction = world.ledger.begin(
            f"<{batch} by {self.name}>", state_partition_of(SINK), batch
        )

    @property
    def batch_name(self) -> BatchName:
        return BatchName(SINK, self._batch.query, self._batch.number)

    @property
    def member(self) -> MemberId:
        return self.producer_id, self.epoch

    @property
    def has_joined(self) -> bool:
        return self.producer_id != -1

    @property
    def highest(self) -> dict[TopicPartition, int]:
        """Return the last offset that it writes of each source partition, inclusive."""
        return {source: offsets[-1] for source, offsets in self._rows.items()}

    def work(self, partitions: list[TopicPartition], then: Then) -> None:
        """Join, enlist and write; `then` gets the outcome."""

        def joined(code: ErrorCode) -> None:
            if code or not partitions:
                then(code)
            else:
                self.enlist(partitions, enlisted)

        def enlisted(code: ErrorCode) -> None:
            if code:
                then(code)
                return
            self._batch.touched(self.answer_times)
            self.write(self.transaction, partitions, then)

        self._join(joined)

    def _join(self, then: Then) -> None:
        request = sink_requests.join(
            self.batch_name, timeout_ms=TIMEOUT_MS, nonce=self.world.number()
        )
        was_known = self._batch.is_known

        def on_answer(answer: JoinBatchResponse, code: ErrorCode) -> None:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            if code is ErrorCode.NONE:
                self._joined(answer, was_known=was_known)
            elif code is ErrorCode.ALREADY_COMMITTED:
                self.world.ledger.note_known(self.transaction)
                self.world.decisions.check_batch(SINK, self._batch.query, self._batch.number)
            then(code)

        spec, version, message = request
        self.ask(self.way, spec, version, message, lambda a: [a.error_code], on_answer)

    def _joined(self, answer: JoinBatchResponse, *, was_known: bool) -> None:
        if was_known:
            self.world.ledger.check_replay(self.transaction, "JoinBatch")
        self.transaction.joined_ms = self.answer_times.sent_ms
        self._batch.touched(self.answer_times)
        fresh = {
            source: range(max(offsets.start, answer.origins.get(source, -1) + 1), offsets.stop)
            for source, offsets in self._rows.items()
        }
        self._rows = {source: offsets for source, offsets in fresh.items() if offsets}
        self._copied.writes(self.transaction, self._rows)
