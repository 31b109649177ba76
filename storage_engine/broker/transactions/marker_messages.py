"""Converts between markers for single partitions and WriteTxnMarkers messages, which group them."""

from collections.abc import Generator, Iterator, Sequence

from storage_engine.broker.transactions.marker_writes import MarkerTarget
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_OWN_EPOCH = 2
"""The transaction version of producers with an epoch for each transaction (KIP-1228)."""

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = _Result.WritableTxnMarkerTopicResult
_Row = _TopicResult.WritableTxnMarkerPartitionResult


def request_of_targets(targets: Sequence[MarkerTarget]) -> WriteTxnMarkersRequest:
    """The request for targets that are grouped by producer."""
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
    """A result a producer, in the order in which they come first."""
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
