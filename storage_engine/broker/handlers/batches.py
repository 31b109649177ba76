"""JoinBatch, CommitBatch, BatchHeartbeat and AbortMembers: micro-batches of the exactly-once sink,
at the coordinator of the sink id.

Rule: what a request means is decided by the core alone (`core.batch_commits`); here it only gets a
producer id that is used once, and its answer. Source: R-SPARK2.
"""

import logging

from storage_engine.broker.coordination.runner import EventOf, OnAnswer
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.core.single_use import single_use
from storage_engine.core.sink_names import member_transactional_id
from storage_engine.core.transaction_events import (
    AbortMembers,
    Answer,
    CommitBatch,
    Heartbeat,
    JoinBatch,
)
from storage_engine.protocol.apis.abort_members import AbortMembersRequest
from storage_engine.protocol.apis.batch_fields import BatchResponse
from storage_engine.protocol.apis.batch_heartbeat import BatchHeartbeatRequest
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest
from storage_engine.protocol.apis.join_batch import JoinBatchRequest, JoinBatchResponse

log = logging.getLogger(__name__)


def join_batch(context: BrokerContext, call: Call, request: JoinBatchRequest) -> None:
    def on_id(producer_id: int, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            respond(Answer(request=0, error=code))
            return
        _ask(
            context,
            request.sink,
            lambda number: JoinBatch(
                request=number,
                sink=request.sink,
                query=request.query,
                batch=request.batch,
                timeout_ms=request.timeout_ms,
                now_ms=context.clock.monotonic_ms(),
                fresh_producer_id=single_use(producer_id),
            ),
            respond,
        )

    def respond(answer: Answer) -> None:
        code = answer.error
        if code is ErrorCode.NONE:
            log.debug(
                "joined sink=%s query=%s batch=%d nonce=%s producer_id=%d",
                request.sink, request.query, request.batch, request.nonce, answer.producer_id,
            )  # fmt: skip
        call.respond(
            JoinBatchResponse(
                error_code=int(code),
                error_message=None if code is ErrorCode.NONE else code.meaning,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
                origins=answer.origins,
            )
        )

    problem = _problem(request.sink, request.query, request.batch)
    if problem is not None:
        call.respond(JoinBatchResponse(error_code=_INVALID, error_message=problem))
        return
    # Else each question to the wrong broker would cost a producer id.
    refusal = context.coordinators.coordinator_of(member_transactional_id(request.sink))
    if isinstance(refusal, ErrorCode):
        respond(Answer(request=0, error=refusal))
    else:
        context.producer_ids.allocate(on_id)


def commit_batch(context: BrokerContext, call: Call, request: CommitBatchRequest) -> None:
    _answer_outcome(
        context,
        call,
        request,
        lambda number: CommitBatch(
            request=number,
            sink=request.sink,
            query=request.query,
            batch=request.batch,
            members=request.members,
            drained=request.drained,
            now_ms=context.clock.wall_ms(),
            origins=request.origins,
        ),
        request.batch,
    )


def heartbeat(context: BrokerContext, call: Call, request: BatchHeartbeatRequest) -> None:
    _answer_outcome(
        context,
        call,
        request,
        lambda number: Heartbeat(
            request=number,
            sink=request.sink,
            query=request.query,
            batch=request.batch,
            now_ms=context.clock.monotonic_ms(),
        ),
        request.batch,
    )


def abort_members(context: BrokerContext, call: Call, request: AbortMembersRequest) -> None:
    _answer_outcome(
        context,
        call,
        request,
        lambda number: AbortMembers(
            request=number, sink=request.sink, query=request.query, members=request.members
        ),
    )


_INVALID = int(ErrorCode.INVALID_REQUEST)

_Request = CommitBatchRequest | BatchHeartbeatRequest | AbortMembersRequest


def _problem(sink: str, query: str, batch: int) -> str | None:
    """Why there can be no such batch."""
    if not sink or not query:
        return "a sink and a query need a name"
    if batch < 0:
        return f"batches count from 0, there is no batch {batch}"
    return None


def _answer_outcome(
    context: BrokerContext, call: Call, request: _Request, event_of: EventOf, batch: int = 0
) -> None:
    def respond(answer: Answer) -> None:
        code = answer.error
        text = None if code is ErrorCode.NONE else code.meaning
        call.respond(BatchResponse(error_code=int(code), error_message=text))

    problem = _problem(request.sink, request.query, batch)
    if problem is not None:
        call.respond(BatchResponse(error_code=_INVALID, error_message=problem))
    else:
        _ask(context, request.sink, event_of, respond)


def _ask(context: BrokerContext, sink: str, event_of: EventOf, on_answer: OnAnswer) -> None:
    context.coordinators.request(member_transactional_id(sink), event_of, on_answer)
