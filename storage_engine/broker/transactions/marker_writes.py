"""Writes the markers of transactions to the partitions that this broker leads. A marker counts as
written when it is replicated.

Of several in one partition the transaction that began first ends last. Until then it bounds the
last stable offset, so that a micro-batch of several tasks becomes readable at once, wherever the
high watermark stands among their markers, also under the next leader.

A coordinator that gets no answer sends the marker again, which is harmless. Source: KIP-98,
R-SPARK2.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from storage_engine.broker.replicas.purgatory import DelayedAnswer
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.delayed_produce import AwaitedAppend
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.apis.produce import ProducePartitionResponse

REPLICATION_WAIT_MS = 5_000
"""How long a marker waits for the followers; after that the coordinator asks again."""


class MarkerTarget(NamedTuple):
    """A marker to be written to one partition."""

    producer_id: int
    producer_epoch: int
    marker: TransactionMarker
    partition: TopicPartition


OnWritten = Callable[[list[ErrorCode]], None]
"""Hears what became of each target, in their order."""


class MarkerWrites:
    """Writes the markers that coordinators send to this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        *,
        on_appended: Callable[[MarkerTarget], None],
    ) -> None:
        """`on_appended` gets each marker that was appended, before anything is appended behind
        it."""
        self._replicas = replicas
        self._scheduler = scheduler
        self._on_appended = on_appended

    def write(self, targets: Sequence[MarkerTarget], on_written: OnWritten) -> None:
        """Append them to partitions led here, and wait for the followers."""
        outcomes = [
            ProducePartitionResponse(*target.partition, int(ErrorCode.NONE), -1, -1, -1)
            for target in targets
        ]
        waiting: list[AwaitedAppend] = []
        begun = [self._first_offset(target) for target in targets]
        for index in sorted(range(len(targets)), key=lambda index: -begun[index]):
            target = targets[index]
            try:
                partition = self._replicas.leader(target.partition)
                result = partition.append_marker(
                    target.producer_id, target.producer_epoch, target.marker
                )
            except KafkaError as failure:
                outcomes[index] = outcomes[index]._replace(error_code=int(failure.code))
            else:
                required = result.last_offset + 1
                self._on_appended(target)
                waiting.append(
                    AwaitedAppend(partition, outcomes, required_offset=required, index=index)
                )
        DelayedAnswer(
            waiting,
            timeout_ms=REPLICATION_WAIT_MS,
            scheduler=self._scheduler,
            respond=lambda: on_written([ErrorCode.of(each.error_code) for each in outcomes]),
        )

    def _first_offset(self, target: MarkerTarget) -> int:
        """The first offset of the transaction in its partition; -1 when it has no records there."""
        partition = self._replicas.get(target.partition)
        if partition is None:
            return -1
        ongoing = partition.log.producer_state.transactions.ongoing
        return ongoing.get(target.producer_id, -1)
