"""InitProducerId: a fresh producer id for an idempotent producer. Source: KIP-98, R-CLI7."""

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handle(context: BrokerContext, call: Call, request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        # Final, so that a transactional producer says so at once instead of trying for ever.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        call.respond(InitProducerIdResponse(error_code=int(code)))
        return

    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            call.respond(InitProducerIdResponse(error_code=int(code)))
        else:
            call.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    context.producer_ids.allocate(on_id)
