"""The streamed search: server-sent events, each made on a thread by one step of the search.

A step takes about half a second, so a search ends soon after its page is closed. Source: R-CON8.
"""

import json
from collections.abc import AsyncIterator, Generator
from functools import partial

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace_console.given import Params
from headrace_console.http.api_cluster import now_ms
from headrace_console.http.api_messages import search_request
from headrace_console.http.routes import Call, call_of, encode, error_response
from headrace_console.http.server_state import ServerState
from headrace_console.problem import ConsoleError, as_console_error
from headrace_console.records.message_search import STREAMED, MessageSearch, SearchEvent
from headrace_console.screens.waiting import waiting_of
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.document import Json

MOST_STREAMS = 20
"""The most streams of all users; each has a thread while it takes a step."""
MOST_STREAMS_EACH = 4
"""The most streams of a session."""
_QUIET = b": still here\n\n"


class Streams:
    """The open streams, counted by session."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._limiter = anyio.CapacityLimiter(MOST_STREAMS)

    async def messages(self, state: ServerState, request: Request) -> Response:
        """Answer the request of a streamed search."""
        call = await call_of(state, request)
        wanted = search_request(call.path["topic"], Params(request.query_params.multi_items()))
        follows = call.params.flag("tail")
        # Without a session, all users of an open cluster share one principal.
        owner = id(call.principal if call.session is None else call.session)
        mine = self._open.get(owner, 0)
        if mine >= MOST_STREAMS_EACH or sum(self._open.values()) >= MOST_STREAMS:
            raise ConsoleError(
                "too_many",
                "too many searches run at the same time; close one of their pages",
                retry_after_s=5,
            )
        cluster = call.upstream.client()
        schemas = call.schemas(wanted.topic)
        search = MessageSearch(cluster, wanted, STREAMED, tail=follows, schemas=schemas)
        # The place is taken: `_Stream` releases it however it ends, and nothing before it can fail.
        self._open[owner] = mine + 1

        async def body() -> AsyncIterator[bytes]:
            try:
                async for part in self._body(call, search.events(), wanted.topic):
                    yield part
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(cluster.close)

        return _Stream(body(), self, owner)

    def release(self, owner: int) -> None:
        left = self._open.get(owner, 1) - 1
        if left:
            self._open[owner] = left
        else:
            self._open.pop(owner, None)

    async def _body(
        self, call: Call, events: Generator[SearchEvent], topic: str
    ) -> AsyncIterator[bytes]:
        step = partial(next, events, None)
        try:
            while True:
                try:
                    event = await to_thread.run_sync(step, limiter=self._limiter)
                except HeadraceError as error:
                    document = as_console_error(error).document
                    yield _event("failed", document)
                    return
                if event is None:
                    return
                if not call.state.sessions.is_alive(call.session):
                    over = ConsoleError("log_in", "log in again: the session is over")
                    yield _event("failed", over.document)
                    return
                document = event.document
                if event.kind == "wait":
                    yield _QUIET
                    continue
                if event.kind == "end":
                    snapshot = await to_thread.run_sync(call.watcher.snapshot)
                    document = {**document, "waiting": waiting_of(snapshot, [topic], now_ms())}
                yield _event(event.kind, document)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(events.close)


class _Stream(StreamingResponse):
    """Releases its place however it ends, also if it never began."""

    def __init__(self, body: AsyncIterator[bytes], streams: Streams, owner: int) -> None:
        super().__init__(body, media_type="text/event-stream")
        self._streams, self._owner = streams, owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._owner)


def _event(kind: str, document: Json) -> bytes:
    """Return a server-sent event. JSON has no line feeds, so it is one line of data."""
    return b"event: " + kind.encode() + b"\ndata: " + encode(document) + b"\n\n"


def failed_stream(error: ConsoleError, request: Request) -> Response:
    """Return an error as an event for an EventSource, which can't read the body of an error."""
    if "text/event-stream" not in request.headers.get("accept", ""):
        return error_response(error)
    text = f"event: failed\ndata: {json.dumps(error.document)}\n\n"
    return Response(text, media_type="text/event-stream")
