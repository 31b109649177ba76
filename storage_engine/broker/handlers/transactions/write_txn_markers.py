"""WriteTxnMarkers: a coordinator has this broker write the ends of transactions to partitions that
it leads.

The epoch of a coordinator is the leader epoch of its partition of the state topic, as this broker
has it from the controller. A marker of a higher one is refused: a log remembers the highest epoch
that it has seen of a producer's coordinators, and would refuse the true coordinator ever after.

A marker that is named twice is written once. All of one partition are written in one step, as their
order matters there. Source: KIP-98.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.marker_messages import (
    response_of_codes,
    targets_of_request,
)
from storage_engine.broker.transactions.marker_writes import MarkerTarget, MarkerWrites
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MARKERS_PER_STEP = 50
"""Each is an append, which takes some 20 microseconds."""


def handle(
    marker_writes: MarkerWrites,
    metadata: MetadataCache,
    call: ApiCall[WriteTxnMarkersResponse],
    request: WriteTxnMarkersRequest,
) -> Steps:
    newest = _newest_epoch(metadata)
    by_partition: dict[TopicPartition, dict[MarkerTarget, None]] = {}
    unknown: dict[MarkerTarget, None] = {}
    for target in targets_of_request(request):
        if target.marker.coordinator_epoch <= newest:
            by_partition.setdefault(target.partition, {})[target] = None
        else:
            unknown[target] = None
        yield None
    written: list[MarkerTarget] = []
    codes: list[ErrorCode] = []
    left = 1

    def note(targets: Sequence[MarkerTarget], some: Sequence[ErrorCode]) -> None:
        nonlocal left
        written.extend(targets)
        codes.extend(some)
        left -= 1
        if not left:
            call.run(respond())

    def respond() -> Steps:
        response = yield from response_of_codes(written, codes)
        call.respond(response)

    for targets in _groups(by_partition):
        left += 1
        marker_writes.write(targets, partial(note, targets))
        yield None
    # A true coordinator, of whose election this broker has yet to hear, sends them again.
    note(list(unknown), [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(unknown))


def _newest_epoch(metadata: MetadataCache) -> int:
    partitions = metadata.partitions(TRANSACTION_STATE_TOPIC) or {}
    return max((each.leader_epoch for each in partitions.values()), default=-1)


def _groups(
    by_partition: dict[TopicPartition, dict[MarkerTarget, None]],
) -> Iterator[list[MarkerTarget]]:
    group: list[MarkerTarget] = []
    for targets in by_partition.values():
        group.extend(targets)
        if len(group) >= MARKERS_PER_STEP:
            yield group
            group = []
    if group:
        yield group
