"""WriteTxnMarkers: a coordinator has this broker write the ends of transactions to partitions that
it leads.

Rule: the epoch of a coordinator is the leader epoch of its partition of the state topic, as the
controller has told it. A marker of a higher one is refused: a log remembers the highest epoch that
it has seen of a producer's coordinators, and would refuse the true coordinator ever after.
Source: KIP-98.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.transactions.marker_messages import (
    response_of_codes,
    targets_of_request,
)
from storage_engine.broker.transactions.marker_writes import MarkerTarget
from storage_engine.core.errors import ErrorCode
from storage_engine.core.internal_topics import TRANSACTION_STATE_TOPIC


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    targets = targets_of_request(request)
    newest = _newest_epoch(context)

    def is_known(target: MarkerTarget) -> bool:
        return target.marker.coordinator_epoch <= newest

    known = [target for target in targets if is_known(target)]

    def on_written(codes: list[ErrorCode]) -> None:
        written = iter(codes)
        # A true coordinator, of whose election this broker has yet to hear, sends it again.
        call.respond(
            response_of_codes(
                targets,
                [
                    next(written) if is_known(target) else ErrorCode.COORDINATOR_NOT_AVAILABLE
                    for target in targets
                ],
            )
        )

    context.marker_writes.write(known, on_written)


def _newest_epoch(context: BrokerContext) -> int:
    partitions = context.metadata.partitions(TRANSACTION_STATE_TOPIC) or {}
    return max((each.leader_epoch for each in partitions.values()), default=-1)
