"""Routes whose work blocks: each is a function of a call, run on a thread, with a time limit.

    @route("GET", "/topics/{topic}")
    def topic(call): return {…}

The function's result is the answer's JSON. Errors become answers in one place. Source: R-CON1.
"""

import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace_console.cluster.registry_upstream import RegistryUpstream
from headrace_console.cluster.upstream import ANSWER_TIMEOUT_S, Upstream
from headrace_console.cluster.watcher import ClusterWatcher
from headrace_console.given import DEFAULT_LIMIT, MOST_LIMIT, Body, Params, bad
from headrace_console.http.guard import MOST_BODY_BYTES, read_body
from headrace_console.http.sessions import ConsoleUser, Session
from headrace_console.paging import Page
from headrace_console.problem import ConsoleError, as_console_error
from headrace_console.records.schema_values import SchemaValues
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.document import Document, Json

if TYPE_CHECKING:
    from headrace_console.http.server_state import ServerState

MOST_THREADS = 40
"""The most concurrent calls of all users."""
PREFIX = "/api/v1"
_LOOK_S = 0.25
"""The interval at which to check whether the browser still waits."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a user who may see the cluster."""

    state: "ServerState"
    session: Session | None
    principal: ConsoleUser
    path: Mapping[str, str]
    params: Params
    body: Body
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the browser does not wait any more."""

    def name(self, part: str) -> str:
        """Return a name in the path; for `~`, the query parameter of that name, which may have
        slashes."""
        text = self.path[part]
        if text != "~":
            return text
        given = self.params.text(part)
        if given is None:
            raise bad(f"parameter '{part}' is missing; it stands for '~' in the path")
        return given

    def is_left(self) -> bool:
        return self.left.is_set()

    @property
    def upstream(self) -> Upstream:
        return self.principal.upstream

    @property
    def watcher(self) -> ClusterWatcher:
        return self.principal.watcher

    @property
    def registry(self) -> RegistryUpstream:
        """The user's connections to the schema registry; ConsoleError without one."""
        found = self.principal.registry
        if found is None:
            raise ConsoleError(
                "not_here",
                "this console knows no schema registry; start it with --registry URL, or the "
                "cluster with: headrace up --registry",
            )
        return found

    def schemas(self, topic: str) -> SchemaValues | None:
        """Return what reads the keys and values of a topic; None without a registry."""
        found = self.principal.registry
        return None if found is None else SchemaValues(found, topic)

    def page(self) -> Page:
        limit = self.params.integer("limit", DEFAULT_LIMIT, least=1, most=MOST_LIMIT)
        offset = self.params.integer("offset", 0)
        assert limit is not None and offset is not None
        return Page(
            offset=offset,
            limit=limit,
            filter=self.params.text("filter") or "",
            sort=self.params.text("sort"),
        )

    def own_session(self) -> Session:
        """Return the session, which every call has that changes something."""
        assert self.session is not None
        return self.session


Answer = tuple[int, Document] | Document | Response
Work = Callable[[Call], Answer]


class RouteTable:
    """The routes of an API module."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, Work]] = []

    def add(self, method: str, path: str) -> Callable[[Work], Work]:
        def added(work: Work) -> Work:
            self._rows.append((method, path, work))
            return work

        return added

    def starlette_routes(self, state: "ServerState") -> list[Route]:
        limiter = anyio.CapacityLimiter(MOST_THREADS)
        return [
            Route(PREFIX + path, partial(_answer, state, limiter, work), methods=[method])
            for method, path, work in self._rows
        ]


async def _answer(
    state: "ServerState", limiter: anyio.CapacityLimiter, work: Work, request: Request
) -> Response:
    return await answered(_done(state, limiter, work, request))


async def _done(
    state: "ServerState", limiter: anyio.CapacityLimiter, work: Work, request: Request
) -> Response:
    call = await call_of(state, request)
    answer: Answer | HeadraceError | None = None
    with anyio.move_on_after(ANSWER_TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_note_leaving, request, call)
            try:
                answer = await to_thread.run_sync(
                    partial(_outcome, work, call), abandon_on_cancel=True, limiter=limiter
                )
            finally:
                call.left.set()
                tasks.cancel_scope.cancel()
    if isinstance(answer, HeadraceError):
        raise answer
    if isinstance(answer, Response):
        return answer
    if answer is not None:
        status, document = answer if isinstance(answer, tuple) else (200, answer)
        return json_response(document, status)
    raise ConsoleError(
        "no_answer", f"the cluster did not answer within {ANSWER_TIMEOUT_S:.0f} s; try again"
    )


def _outcome(work: Work, call: Call) -> Answer | HeadraceError:
    """Return an error as a value: a task group would wrap a raised one."""
    try:
        return work(call)
    except HeadraceError as error:
        return error


async def _note_leaving(request: Request, call: Call) -> None:
    while not await request.is_disconnected():  # noqa: ASYNC110 - it has no event
        await anyio.sleep(_LOOK_S)
    call.left.set()


async def call_of(state: "ServerState", request: Request) -> Call:
    """Return the call of a request, whose session, CSRF token and body are checked."""
    session = state.session_of(request)
    principal = state.principal_of(session)
    body = Body({})
    if request.method not in ("GET", "HEAD"):
        if session is None:
            raise ConsoleError("log_in", "the session is over; load the page again")
        session.check_csrf(request.headers.get("x-csrf-token"))
        check_json(request)
        if state.settings.read_only:
            raise ConsoleError("read_only", "this console is read-only: it changes nothing")
        data = await read_body(request.stream(), most_bytes=MOST_BODY_BYTES)
        body = await to_thread.run_sync(Body.parse, data)
    return Call(
        state=state,
        session=session,
        principal=principal,
        path=request.path_params,
        params=Params(request.query_params.multi_items()),
        body=body,
    )


def check_json(request: Request) -> None:
    """Refuse other bodies than JSON: a form of another site can't send JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ConsoleError("bad_request", "the Content-Type must be application/json")


async def answered(work: Awaitable[Response]) -> Response:
    """Await an answer; an exception becomes an error response."""
    try:
        return await work
    except HeadraceError as error:
        return error_response(as_console_error(error))
    except Exception:
        log.exception("a request has failed")
        return error_response(
            ConsoleError("internal", "the console met an error; its log has the details")
        )


def error_response(error: ConsoleError) -> Response:
    response = json_response(error.document, error.status)
    if error.retry_after_s is not None:
        response.headers["retry-after"] = str(error.retry_after_s)
    return response


def json_response(document: Json, status: int = 200) -> Response:
    return Response(encode(document), status, media_type="application/json")


def encode(document: Json) -> bytes:
    """Return JSON in UTF-8, with ? for characters that can't be encoded."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
