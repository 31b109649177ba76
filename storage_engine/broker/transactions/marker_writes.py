"""Writes the markers of transactions to the partitions that this broker leads. A marker counts as
written when it is replicated.

Of several in one partition the transaction that began first ends last. Until then it bounds the
last stable offset, so that a micro-batch of several tasks becomes readable at once, wherever the
high watermark stands among their markers, also under the next leader.

A coordinator that gets no answer sends the marker again, which is harmless. Source: KIP-98,
R-SPARK2.

The functions convert between markers for single partitions and WriteTxnMarkers messages, which
group them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from storage_engine.broker.replicas.purgatory import DelayedAnswer
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.delayed_produce import AwaitedAppend
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.apis.produce import ProducePartitionResponse
from storage_engine.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

REPLICATION_WAIT_MS = 5_000
"""How long a marker waits for the followers; after that the coordinator asks again."""


class MarkerTarget(NamedTuple):
    """A marker to be written to one partition."""

    producer_id: int
    producer_epoch: int
    marker: TransactionMarker
    partition: TopicPartition


OnWritten = Callable[[list[ErrorCode]], None]
"""Called with the code of each target, in their order."""


class MarkerWrites:
    """Writes the markers that coordinators send to this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        *,
        on_appended: Callable[[MarkerTarget], None],
    ) -> None:
        """`on_appended` receives each appended marker, before anything is appended behind it."""
        self._replicas = replicas
        self._scheduler = scheduler
        self._on_appended = on_appended

    def write(self, targets: Sequence[MarkerTarget], on_written: OnWritten) -> None:
        """Append the markers to partitions led here, and wait for the followers."""
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


_OWN_EPOCH = 2
"""The transaction version of producers with an epoch for each transaction (KIP-1228)."""

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = _Result.WritableTxnMarkerTopicResult
_Row = _TopicResult.WritableTxnMarkerPartitionResult


def request_of_targets(targets: Sequence[MarkerTarget]) -> WriteTxnMarkersRequest:
    """The request for these targets, grouped by producer."""
    markers: dict[tuple[int, int, TransactionMarker], dict[str, list[int]]] = {}
    for producer_id, epoch, marker, tp in targets:
        topics = markers.setdefault((producer_id, epoch, marker), {})
        topics.setdefault(tp.topic, []).append(tp.partition)
    return WriteTxnMarkersRequest(
        markers=[
            _Marker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=marker.commits,
                topics=[
                    _Marker.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                    for topic, numbers in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=_OWN_EPOCH if marker.has_own_epoch else 0,
            )
            for (producer_id, epoch, marker), topics in markers.items()
        ]
    )


def targets_of_request(request: WriteTxnMarkersRequest) -> Iterator[MarkerTarget]:
    return (
        MarkerTarget(
            each.producer_id,
            each.producer_epoch,
            TransactionMarker(
                each.transaction_result,
                each.coordinator_epoch,
                each.transaction_version >= _OWN_EPOCH,
            ),
            TopicPartition(topic.name, number),
        )
        for each in request.markers
        for topic in each.topics
        for number in topic.partition_indexes
    )


def response_of_codes(
    targets: Sequence[MarkerTarget], codes: Sequence[ErrorCode]
) -> Generator[None, None, WriteTxnMarkersResponse]:
    """The response with one result for each producer, in order of first appearance."""
    results: dict[int, dict[str, list[_Row]]] = {}
    for target, code in zip(targets, codes, strict=True):
        yield None
        topics = results.setdefault(target.producer_id, {})
        topics.setdefault(target.partition.topic, []).append(
            _Row(partition_index=target.partition.partition, error_code=int(code))
        )
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=producer_id,
                topics=[
                    _TopicResult(name=topic, partitions=rows) for topic, rows in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


def codes_of_response(
    response: WriteTxnMarkersResponse, targets: Sequence[MarkerTarget]
) -> list[ErrorCode]:
    """The error code of each target; UNKNOWN_SERVER_ERROR for a target that the answer leaves
    out."""
    codes = {
        (result.producer_id, TopicPartition(topic.name, row.partition_index)): row.error_code
        for result in response.markers
        for topic in result.topics
        for row in topic.partitions
    }
    unknown = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [
        ErrorCode.of(codes.get((target.producer_id, target.partition), unknown))
        for target in targets
    ]
