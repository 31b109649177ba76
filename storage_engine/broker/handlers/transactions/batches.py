"""JoinBatch, CommitBatch, BatchHeartbeat and AbortMembers: micro-batches of the exactly-once sink,
at the coordinator of the sink id.

The core alone decides on a request (`core.transactions.micro_batch_commits`). A handler only
allocates a producer id that is used once, answers, and logs the rows that are dropped. Source:
R-SPARK2.
"""

from dataclasses import dataclass

from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.coordinators.runner import EventOf
from storage_engine.broker.coordinators.state_machine import OnAnswer
from storage_engine.broker.handlers.api_call import AnyCall, ApiCall
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_table import single_use
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    CommitMicroBatch,
    CommittedMicroBatch,
    Event,
    JoinMicroBatch,
    MicroBatchHeartbeat,
    TransactionAnswer,
)
from storage_engine.core.transactions.transaction_state import (
    NAMED_PREFIX,
    NumberClaim,
    is_once,
    member_transactional_id,
    part_and_number,
)
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.apis.abort_members import AbortMembersRequest
from storage_engine.protocol.apis.batch_heartbeat import BatchHeartbeatRequest
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest, CommitBatchResponse
from storage_engine.protocol.apis.join_batch import JoinBatchRequest, JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import (
    UNKNOWN_COMMITTER,
    UNKNOWN_ROWS,
    BatchResponse,
    ClaimedBy,
    CommittedBy,
)

log = ClientLog(__name__)


_INVALID = int(ErrorCode.INVALID_REQUEST)

MOST_NAME_LENGTH = 1_000
"""The longest name of an owner or a part, in characters: they are kept as long as the sink."""

MOST_NAME_BYTES = 32_000
"""The longest name in the coordinator's log, whose strings have 32,767 bytes at most; a sink's name
gets a prefix there."""

_Named = JoinBatchRequest | CommitBatchRequest
_Request = BatchHeartbeatRequest | AbortMembersRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatchHandlers:
    """Answers the requests about micro-batches."""

    coordinators: TransactionCoordinators
    producer_ids: ProducerIds
    clock: Clock

    def join_batch(self, call: ApiCall[JoinBatchResponse], request: JoinBatchRequest) -> None:
        def on_id(producer_id: int, code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                respond(TransactionAnswer(request=0, error=code))
                return
            self._ask(
                call,
                request.sink,
                lambda number: JoinMicroBatch(
                    request=number,
                    sink=request.sink,
                    query=request.query,
                    batch=request.batch,
                    timeout_ms=request.timeout_ms,
                    now_ms=self.clock.monotonic_ms(),
                    fresh_producer_id=single_use(producer_id),
                    owner=request.owner,
                    run=request.run,
                    claim=_claim(request),
                ),
                respond,
            )

        def respond(answer: TransactionAnswer) -> None:
            code = answer.error
            if code is ErrorCode.NONE:
                log.debug(
                    request.sink,
                    "joined sink=%s query=%s batch=%d nonce=%s producer_id=%d",
                    request.sink, request.query, request.batch, request.nonce, answer.producer_id,
                )  # fmt: skip
            call.respond(
                JoinBatchResponse(
                    error_code=int(code),
                    error_message=_text(request, answer),
                    producer_id=answer.producer_id,
                    producer_epoch=answer.producer_epoch,
                    origins=answer.origins,
                    committed=_committed(answer.committed),
                )
            )

        problem = _problem(request, request.batch) or _name_problem(request)
        if problem is not None:
            call.respond(JoinBatchResponse(error_code=_INVALID, error_message=problem))
            return
        # Otherwise each request to the wrong broker would cost a producer id.
        refusal = self.coordinators.coordinator_of(member_transactional_id(request.sink))
        if isinstance(refusal, ErrorCode):
            respond(TransactionAnswer(request=0, error=refusal))
        else:
            self.producer_ids.allocate(on_id)

    def commit_batch(self, call: ApiCall[CommitBatchResponse], request: CommitBatchRequest) -> None:
        def event_of(number: int) -> CommitMicroBatch:
            return CommitMicroBatch(
                request=number,
                sink=request.sink,
                query=request.query,
                batch=request.batch,
                members=request.members,
                drained=request.drained,
                now_ms=self.clock.wall_ms(),
                origins=request.origins,
                owner=request.owner,
                run=request.run,
                claim=_claim(request),
                rows=_rows_of(request),
            )

        def respond(answer: TransactionAnswer) -> None:
            _log_dropped(request, answer)
            call.respond(
                CommitBatchResponse(
                    error_code=int(answer.error),
                    error_message=_text(request, answer),
                    committed=_committed(answer.committed),
                )
            )

        problem = _problem(request, request.batch) or _name_problem(request)
        if problem is not None:
            call.respond(CommitBatchResponse(error_code=_INVALID, error_message=problem))
        else:
            self._ask(call, request.sink, event_of, respond)

    def heartbeat(self, call: ApiCall[BatchResponse], request: BatchHeartbeatRequest) -> None:
        self._answer_outcome(
            call,
            request,
            lambda number: MicroBatchHeartbeat(
                request=number,
                sink=request.sink,
                query=request.query,
                batch=request.batch,
                now_ms=self.clock.monotonic_ms(),
            ),
            request.batch,
        )

    def abort_members(self, call: ApiCall[BatchResponse], request: AbortMembersRequest) -> None:
        self._answer_outcome(
            call,
            request,
            lambda number: AbortMembers(
                request=number,
                sink=request.sink,
                query=request.query,
                members=request.members,
                write=request.write,
            ),
        )

    def _answer_outcome(
        self,
        call: ApiCall[BatchResponse],
        request: _Request,
        event_of: EventOf[Event],
        batch: int = 0,
    ) -> None:
        def respond(answer: TransactionAnswer) -> None:
            code = answer.error
            text = None if code is ErrorCode.NONE else code.meaning
            call.respond(BatchResponse(error_code=int(code), error_message=text))

        problem = _problem(request, batch)
        if problem is not None:
            call.respond(BatchResponse(error_code=_INVALID, error_message=problem))
        else:
            self._ask(call, request.sink, event_of, respond)

    def _ask(
        self,
        call: AnyCall,
        sink: str,
        event_of: EventOf[Event],
        on_answer: OnAnswer[TransactionAnswer],
    ) -> None:
        name = member_transactional_id(sink)
        self.coordinators.request(name, call.while_allowed(event_of), on_answer)


def _problem(request: _Named | _Request, batch: int) -> str | None:
    """The reason why there is no such batch; None if there can be."""
    if not request.sink or not request.query:
        return "a sink and a query need a name"
    if batch < 0:
        return f"batches count from 0, there is no batch {batch}"
    # Names are encoded only where their length in bytes can matter.
    if any(
        4 * len(name) > MOST_NAME_BYTES and len(name.encode()) > MOST_NAME_BYTES
        for name in _names(request)
    ):
        return f"the names of a sink, a query and a topic have {MOST_NAME_BYTES} bytes at most"
    return None


def _names(request: _Named | _Request) -> set[str]:
    """All names that the coordinator would store."""
    names = {request.sink, request.query}
    if isinstance(request, _Named):
        names.add(request.owner)
    if isinstance(request, CommitBatchRequest):
        names |= {source.topic for source in request.origins}
    return names


def _name_problem(request: _Named) -> str | None:
    """The reason why the name can't be written under; None if it can."""
    if not request.query.startswith(NAMED_PREFIX):
        return None
    named = part_and_number(request.query)
    if named is None or named[1] != request.batch:
        query = request.query[:MOST_NAME_LENGTH]
        return f"the query {query!r} does not name the number {request.batch} of a part"
    if len(request.owner) > MOST_NAME_LENGTH or len(named[0]) > MOST_NAME_LENGTH:
        return f"the names of a query and of a part have {MOST_NAME_LENGTH} characters at most"
    return None


def _text(request: _Named, answer: TransactionAnswer) -> str | None:
    """The error message with the name in question; None when there is no error."""
    code = answer.error
    if code is ErrorCode.NONE:
        return None
    named = part_and_number(request.query)
    if named is None:
        return code.meaning
    by, claim = answer.committed, request.claim
    if code is ErrorCode.BATCH_ID_TAKEN and by and by.claim and claim and by.owner == request.owner:
        return _taken(f"batchId {request.batch} of part '{named[0]}'", by.claim, claim)
    owner = "" if by is None or not by.owner else f", committed by the query {by.owner}"
    return f"batchId {request.batch} of part '{named[0]}'{owner}: {code.meaning}"


def _taken(name: str, by: NumberClaim, claim: ClaimedBy) -> str:
    """The error message that names the write of the same query which has committed the number."""
    if by.micro_batch != claim.micro_batch:
        return (
            f"{name}, committed by micro-batch {by.micro_batch} of this query, and this is "
            f"{claim.micro_batch}: give each micro-batch a batchId of its own"
        )
    return (
        f"{name}: this is a second write under one name in micro-batch {claim.micro_batch}, and "
        "none of its rows is written: give each write a sinkPart of its own"
    )


def _claim(request: _Named) -> NumberClaim | None:
    """The claim of a named batch write, or of the note of one that moves origins. Streaming queries
    have none: their numbers are Spark's."""
    claim = request.claim
    has_name = part_and_number(request.query) is not None or is_once(request.query)
    if claim is None or not has_name or not request.owner:
        return None
    return NumberClaim(claim.micro_batch, claim.attempt, claim.write)


def _committed(committed: CommittedMicroBatch | None) -> CommittedBy:
    if committed is None:
        return UNKNOWN_COMMITTER
    return CommittedBy(committed.owner, committed.run, committed.rows, committed.winner)


def _log_dropped(request: CommitBatchRequest, answer: TransactionAnswer) -> None:
    """Log the rows that tasks had and this commit does not write."""
    by = answer.committed
    # The first answer was lost, maybe with a coordinator that has logged nothing.
    is_own = by is not None and by.winner in {producer_id for producer_id, _ in request.members}
    if request.dropped > 0 and (is_own or answer.error is ErrorCode.NONE):
        log.warning(
            request.sink,
            "rows dropped sink=%r query=%r batch=%d rows=%d: the sink has them, by their origin",
            request.sink, request.query, request.batch, request.dropped,
        )  # fmt: skip
    if by is None or is_own:
        return
    rows = _rows_of(request)
    if rows > 0 or (rows == UNKNOWN_ROWS and (request.members or request.drained)):
        log.warning(
            request.sink,
            "rows dropped sink=%r query=%r batch=%d rows=%s: %s, by owner=%r run=%s rows=%s",
            request.sink, request.query, request.batch, _count(rows), answer.error.meaning,
            by.owner, by.run, _count(by.rows),
        )  # fmt: skip
    if UNKNOWN_ROWS not in (rows, by.rows) and rows != by.rows:
        log.warning(
            request.sink,
            "a replay has another number of rows sink=%r query=%r batch=%d run=%s rows=%d: "
            "what was committed by run=%s had rows=%d",
            request.sink, request.query, request.batch, request.run, rows, by.run, by.rows,
        )  # fmt: skip


def _rows_of(request: CommitBatchRequest) -> int:
    """The number of rows of all tasks, including those that the sink holds already, so that a
    replay has the same number. UNKNOWN_ROWS when the request does not say."""
    if request.rows == UNKNOWN_ROWS:
        return UNKNOWN_ROWS
    if request.dropped == UNKNOWN_ROWS:
        # Without a drained task no row can have been dropped.
        return UNKNOWN_ROWS if request.drained else request.rows
    return request.rows + request.dropped


def _count(rows: int) -> str:
    return "unknown" if rows == UNKNOWN_ROWS else str(rows)
