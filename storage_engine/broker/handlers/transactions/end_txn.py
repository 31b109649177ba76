"""EndTxn: a producer commits or aborts its transaction.

Rule: it is answered when the decision can't be lost; with version 5 the producer goes on under
another epoch (KIP-890). Source: KIP-98.
"""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.handlers.transactions.fenced_producers import code_for
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_events import EndTransaction, TransactionAnswer
from storage_engine.core.transactions.transaction_state import NO_PRODUCER_ID
from storage_engine.protocol.apis.end_txn import EndTxnResponse

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_EPOCH_BUMP = 5


def end_txn(context: BrokerContext, call: Call, request: Any) -> None:
    def respond(answer: TransactionAnswer) -> None:
        code = code_for(answer.error, call.version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        call.respond(
            EndTxnResponse(
                error_code=code,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        )

    def end(fresh_producer_id: int) -> None:
        context.coordinators.request(
            request.transactional_id,
            lambda number: EndTransaction(
                request=number,
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                commits=request.committed,
                now_ms=context.clock.wall_ms(),
                fresh_producer_id=fresh_producer_id,
                bumps_epoch=call.version >= FIRST_VERSION_WITH_EPOCH_BUMP,
            ),
            respond,
        )

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            end(producer_id)
        else:
            respond(TransactionAnswer(request=0, error=code))

    if call.version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        # For the case that the epochs of the present one are used up.
        context.producer_ids.allocate(on_id)
    else:
        end(NO_PRODUCER_ID)
