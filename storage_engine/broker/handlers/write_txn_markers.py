"""WriteTxnMarkers: a coordinator has this broker write the ends of transactions to partitions that
it leads.

Source: KIP-98.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.transactions.marker_messages import (
    response_of_codes,
    targets_of_request,
)


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    targets = targets_of_request(request)
    context.marker_writes.write(
        targets, lambda codes: call.respond(response_of_codes(targets, codes))
    )
