"""WriteTxnMarkers: a coordinator has this broker write the ends of transactions to partitions that
it leads.

Rule: a marker that is named twice is written once. All of one partition are written in one step, as
their order matters there. Source: KIP-98.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.long_work import Steps
from storage_engine.broker.transactions.marker_messages import (
    response_of_codes,
    targets_of_request,
)
from storage_engine.broker.transactions.marker_writes import MarkerTarget
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition

MARKERS_PER_STEP = 50
"""Each is an append, of some 20 microseconds."""


def handle(context: BrokerContext, call: Call, request: Any) -> Steps:
    by_partition: dict[TopicPartition, dict[MarkerTarget, None]] = {}
    for target in targets_of_request(request):
        by_partition.setdefault(target.partition, {})[target] = None
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
        context.marker_writes.write(targets, lambda some, targets=targets: note(targets, some))  # type: ignore[misc]
        yield None
    note((), ())


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
