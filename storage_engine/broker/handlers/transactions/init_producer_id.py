"""InitProducerId: a fresh producer id for an idempotent producer; for a transactional one the id
and epoch that its coordinator gives it, which fences those before it.

Source: KIP-98, KIP-360, R-CLI7.
"""

from storage_engine.broker.cluster.registration import ProducerIds
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.transactions.fenced_producers import code_for
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.transaction_events import InitProducer, TransactionAnswer
from storage_engine.core.transactions.transaction_state import is_member, is_too_long
from storage_engine.core.transactions.verification_guard import is_search
from storage_engine.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def handle(
    coordinators: TransactionCoordinators,
    producer_ids: ProducerIds,
    clock: Clock,
    call: ApiCall[InitProducerIdResponse],
    request: InitProducerIdRequest,
) -> None:
    name = request.transactional_id

    def refuse(code: ErrorCode) -> None:
        call.respond(InitProducerIdResponse(error_code=int(code)))

    def respond(answer: TransactionAnswer) -> None:
        call.respond(
            InitProducerIdResponse(
                error_code=code_for(answer.error, call.version, FIRST_VERSION_WITH_PRODUCER_FENCED),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        )

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            refuse(code)
        elif name is None:
            call.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        else:
            coordinators.request(
                name,
                call.while_allowed(
                    lambda number: InitProducer(
                        request=number,
                        transactional_id=name,
                        timeout_ms=request.transaction_timeout_ms,
                        now_ms=clock.wall_ms(),
                        fresh_producer_id=producer_id,
                        producer_id=request.producer_id,
                        producer_epoch=request.producer_epoch,
                    )
                ),
                respond,
            )

    if name is not None and (not name or is_member(name) or is_search(name) or is_too_long(name)):
        refuse(ErrorCode.INVALID_REQUEST)
    else:
        producer_ids.allocate(on_id)
