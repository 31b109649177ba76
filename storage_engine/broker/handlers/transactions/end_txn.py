"""EndTxn: a producer commits or aborts its transaction.

It is answered when the decision can't be lost; with version 5 the producer goes on under another
epoch (KIP-890). Source: KIP-98.
"""

from storage_engine.broker.cluster.registration import ProducerIds
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.transactions.fenced_producers import code_for
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.transaction_events import EndTransaction, TransactionAnswer
from storage_engine.core.transactions.transaction_state import NO_PRODUCER_ID
from storage_engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_EPOCH_BUMP = 5


def handle(
    coordinators: TransactionCoordinators,
    producer_ids: ProducerIds,
    clock: Clock,
    call: ApiCall[EndTxnResponse],
    request: EndTxnRequest,
) -> None:
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
        coordinators.request(
            request.transactional_id,
            call.while_allowed(
                lambda number: EndTransaction(
                    request=number,
                    transactional_id=request.transactional_id,
                    producer_id=request.producer_id,
                    producer_epoch=request.producer_epoch,
                    commits=request.committed,
                    now_ms=clock.wall_ms(),
                    fresh_producer_id=fresh_producer_id,
                    bumps_epoch=call.version >= FIRST_VERSION_WITH_EPOCH_BUMP,
                )
            ),
            respond,
        )

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            end(producer_id)
        else:
            respond(TransactionAnswer(request=0, error=code))

    if call.version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        # It is needed if the epochs of the present one are used up.
        producer_ids.allocate(on_id)
    else:
        end(NO_PRODUCER_ID)
