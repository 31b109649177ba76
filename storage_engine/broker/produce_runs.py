"""Finds runs of alike Produce requests in what a connection has received.

Rule: whether a request is taken in a run or by itself makes no difference but in time: what does
not fit the connection's present pattern goes the general way. Source: R-NET1, R-LOG12.
"""

from storage_engine.broker.handlers.context import BrokerContext
from storage_engine.broker.handlers.records import produce
from storage_engine.broker.requests.long_work import INLINE_ITEMS
from storage_engine.core.errors import InvalidRequestError
from storage_engine.net.connection import Connection
from storage_engine.protocol.apis.produce import API
from storage_engine.protocol.apis.wire import LongMessageError, decode_short
from storage_engine.protocol.framing import MIN_REQUEST_BYTES, SIZE_BYTES, parse_request_header
from storage_engine.protocol.produce_run import ProducePattern

PATIENCE = 4
"""Patterns in a row that fitted one request only: then the client is taken for one that changes
between partitions, for which a pattern costs more than it saves."""

RUN_MAX = 512
"""Requests of one run: those that are answered at once would else fill a turn with all that one
read brings, ten thousand small ones."""

REST = 1000
"""Requests that such a client goes the general way before it is looked at again."""

_PRODUCE_KEY = API.key
_LEAST_BYTES = SIZE_BYTES + MIN_REQUEST_BYTES
_API_KEY_AT = SIZE_BYTES + 1
"""The low byte of the api key; no key needs the high one."""


class _Habit:
    """What is known of a connection's produce requests."""

    __slots__ = ("misses", "pattern", "rest")

    def __init__(self) -> None:
        self.pattern: ProducePattern | None = None
        self.misses = 0
        # Requests until the next attempt.
        self.rest = 0


class ProduceRuns:
    """The `handle_run` of a broker's server."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def __call__(self, connection: Connection, view: memoryview, position: int, end: int) -> int:
        """The position after the requests that were handled; `position` itself when it is not the
        beginning of a run."""
        if end - position < _LEAST_BYTES or view[position + _API_KEY_AT] != _PRODUCE_KEY:
            return position
        habit = connection.memo
        if habit is None:
            connection.memo = habit = _Habit()
        assert isinstance(habit, _Habit)
        pattern = habit.pattern
        if pattern is not None:
            following = self._take(connection, pattern, view, position, end)
            if following != position:
                habit.misses = 0
                return following
        self._learn(habit, connection, view, position)
        if habit.pattern is None:
            return position
        return self._take(connection, habit.pattern, view, position, end)

    def _take(
        self,
        connection: Connection,
        pattern: ProducePattern,
        view: memoryview,
        position: int,
        end: int,
    ) -> int:
        at_once = produce.answers_at_once(self._context, connection, pattern)
        most = RUN_MAX if at_once else connection.room
        ids, columns, following = pattern.match_columns(view, position, end, most)
        if columns is not None and produce.handle_columns(
            self._context, connection, pattern, ids, columns
        ):
            return following
        run, following = pattern.match(view, position, end, most)
        if run.records:
            produce.handle_run(self._context, connection, run)
        return following

    def _learn(
        self, habit: _Habit, connection: Connection, view: memoryview, position: int
    ) -> None:
        """Look for a pattern in the frame at `position`."""
        habit.pattern = None
        if habit.rest:
            habit.rest -= 1
            return
        habit.misses += 1
        if habit.misses > PATIENCE:
            habit.misses, habit.rest = 0, REST
            return
        start = position + SIZE_BYTES
        frame = view[start : start + int.from_bytes(view[position:start], "big")]
        try:
            header, body = parse_request_header(frame)
            request = decode_short(API.decode_request, header.api_version, body, INLINE_ITEMS)
        except (InvalidRequestError, LongMessageError):
            # The general way says what is wrong.
            return
        if header.api_key == _PRODUCE_KEY:
            habit.pattern = ProducePattern.of(
                frame, header.api_version, request, frame_max_bytes=connection.frame_max_bytes
            )
