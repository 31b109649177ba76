"""Joins runs of similar Produce requests, each a small batch for one partition, into one append.

    bytes received -> the connection's pattern fits two requests or more -> columns -> one append
                   -> it does not, or a batch is not plainly good -> the general way, one by one

A request in a run gets the same answer as by itself, only sooner. A request that does not fit the
connection's present pattern goes through the dispatcher. Source: R-NET1, R-LOG12.
"""

from collections.abc import Callable
from itertools import pairwise

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.records.produce import ProduceHandler
from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.requests.long_work import INLINE_ITEMS
from storage_engine.core.errors import InvalidRequestError, KafkaError
from storage_engine.core.metrics.broker_figures import RequestFigures
from storage_engine.log.appending.append_result import AppendOutcome, AppendResult
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.produce import API, ProducePartition, ProduceRequest
from storage_engine.protocol.apis.wire import LongMessageError, decode_short
from storage_engine.protocol.framing import MIN_REQUEST_BYTES, SIZE_BYTES, parse_request_header
from storage_engine.protocol.produce_run import ProducePattern, ProduceRun
from storage_engine.protocol.records.record_batch import NO_TIMESTAMP

PATIENCE = 4
"""Patterns and runs in a row that came to nothing: then the client is taken for one that changes
between partitions, or whose batches can't be appended together, for which a pattern costs more than
it saves."""

RUN_MAX = 512
"""Requests of one run: those that are answered at once would else fill a turn with all that one
read brings, ten thousand small ones."""

REST = 1000
"""Requests of such a client that go the general way before a run is looked for again."""

_PRODUCE_KEY = API.key
_LEAST_BYTES = SIZE_BYTES + MIN_REQUEST_BYTES
_API_KEY_AT = SIZE_BYTES + 1
"""The low byte of the api key; no key needs the high one."""


MayWrite = Callable[[Connection, str], bool]


class _LearnedPattern:
    """The pattern of a connection's produce requests, and how useful it was."""

    __slots__ = ("misses", "pattern", "rest")

    def __init__(self) -> None:
        self.pattern: ProducePattern | None = None
        self.misses = 0
        self.rest = 0
        """Requests that go the general way before a run is looked for again."""

    def record_use(self, is_of_use: bool) -> None:
        """Counts a miss, when a pattern had to be learned or its run could not be taken; a success
        (`is_of_use`) resets the count."""
        self.misses = 0 if is_of_use else self.misses + 1
        if self.misses > PATIENCE:
            self.misses, self.rest = 0, REST


class ProduceRuns:
    """The `handle_run` of a broker's server."""

    def __init__(
        self, produce: ProduceHandler, clients: ClientUsage, may_write: MayWrite | None = None
    ) -> None:
        """`may_write` None: everybody may write to all topics."""
        self._clients = clients
        self._produce = produce
        self._may_write = may_write
        self._replicas = produce.replicas
        self._producer_appends = produce.producer_appends
        self.figures: RequestFigures | None = None
        """Set where requests are counted."""
        self._untimed = 0
        """Requests that are answered one by one and not timed, before the next one that is."""

    def __call__(self, connection: Connection, view: memoryview, position: int, end: int) -> int:
        """The position after the requests that were handled; `position` itself when it is not the
        beginning of a run."""
        if end - position < _LEAST_BYTES or view[position + _API_KEY_AT] != _PRODUCE_KEY:
            return position
        if end - position == SIZE_BYTES + int.from_bytes(view[position : position + SIZE_BYTES]):
            # It is alone: columns pay from two requests on.
            return position
        if self._clients.bounds_requests:
            # The general way counts them.
            return position
        learned = connection.memo
        if learned is None:
            connection.memo = learned = _LearnedPattern()
        assert isinstance(learned, _LearnedPattern)
        if learned.rest:
            learned.rest -= 1
            return position
        is_known = learned.pattern is not None
        run = self._match(learned.pattern, connection, view, position, end)
        if run is None:
            is_known = False
            self._learn(learned, connection, view, position)
            run = self._match(learned.pattern, connection, view, position, end)
            if run is None:
                return position
        is_taken = self._take(connection, run)
        if not is_taken:
            learned.rest = len(run.correlation_ids) - 1
        if is_known:
            learned.record_use(is_taken)
        return run.end if is_taken else position

    def _match(
        self,
        pattern: ProducePattern | None,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
    ) -> ProduceRun | None:
        """The requests from `position` on that fit the pattern."""
        if pattern is None:
            return None
        at_once = self._answers_at_once(connection, pattern)
        return pattern.match(view, position, end, RUN_MAX if at_once else connection.room)

    def _answers_at_once(self, connection: Connection, pattern: ProducePattern) -> bool:
        """Whether all requests of a run are answered, and their answers released, within the
        call."""
        if pattern.acks != 1 or connection.unanswered:
            return False
        partition = self._replicas.get(pattern.partition)
        if partition is None:
            return True
        return (
            not partition.config.flush_before_ack
            and partition.log.leader_appends.requirement is None
            and not self._producer_appends.has_waiting(pattern.partition, connection)
        )

    def _take(self, connection: Connection, run: ProduceRun) -> bool:
        """Append and answer; False, and nothing is done, unless all batches can be appended as they
        are."""
        pattern, columns = run.pattern, run.columns
        tp = pattern.partition
        if self._may_write is not None and not self._may_write(connection, tp.topic):
            # The general way refuses each.
            return False
        figures = self.figures
        begun_ns = 0 if figures is None else figures.now_ns()
        outcome = self._producer_appends.append_columns(tp, columns, connection, acks=pattern.acks)
        if outcome is None:
            return False
        if figures is not None:
            figures.counts[pattern.version] += len(columns)
        if isinstance(outcome, KafkaError):
            for correlation_id in run.correlation_ids:
                self._answer_one(connection, pattern, correlation_id, outcome, begun_ns)
        elif self._answers_at_once(connection, pattern):
            partition = self._replicas.get(tp)
            assert partition is not None, "its log was appended to in this call"
            start_offset = partition.log.log_start_offset
            answers = pattern.answers(run.correlation_ids, outcome[:-1], start_offset)
            connection.begin().respond([answers])
            if figures is not None:
                figures.answered(begun_ns, len(columns))
        else:
            for correlation_id, size, (base_offset, following) in zip(
                run.correlation_ids, columns.sizes, pairwise(outcome), strict=True
            ):
                result = AppendResult(
                    base_offset, following - 1, following, NO_TIMESTAMP, False, size
                )
                self._answer_one(connection, pattern, correlation_id, result, begun_ns)
        return True

    def _answer_one(
        self,
        connection: Connection,
        pattern: ProducePattern,
        correlation_id: int,
        outcome: AppendOutcome,
        begun_ns: int,
    ) -> None:
        call = ApiCall(API, pattern.version, correlation_id, connection, connection.begin())
        figures = self.figures
        if self._untimed:
            self._untimed -= 1
        elif figures is not None:
            self._untimed = figures.sample_mask
            call.figures, call.begun_ns, call.weight = figures, begun_ns, figures.weight
        tp = pattern.partition
        item = ProducePartition(tp.topic, tp.partition, None)
        request = ProduceRequest(None, pattern.acks, pattern.timeout_ms, [item])
        self._produce.answer(call, request, [outcome])

    def _learn(
        self, learned: _LearnedPattern, connection: Connection, view: memoryview, position: int
    ) -> None:
        """Make the pattern of the frame at `position`, if it has one."""
        learned.pattern = None
        learned.record_use(False)
        if learned.rest:
            return
        start = position + SIZE_BYTES
        frame = view[start : start + int.from_bytes(view[position:start], "big")]
        try:
            header, body = parse_request_header(frame)
            request = decode_short(API.decode_request, header.api_version, body, INLINE_ITEMS)
        except (InvalidRequestError, LongMessageError):
            # The general way closes the connection with the reason.
            return
        if header.api_key == _PRODUCE_KEY:
            learned.pattern = ProducePattern.of(
                frame, header.api_version, request, frame_max_bytes=connection.frame_max_bytes
            )
