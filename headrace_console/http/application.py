"""The application: all routes, within the guard."""

import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace_console.cluster.upstream import ANSWER_TIMEOUT_S
from headrace_console.given import Body
from headrace_console.http import (
    api_cluster,
    api_groups,
    api_messages,
    api_queries,
    api_schemas,
    api_topics,
)
from headrace_console.http.guard import RequestGuard, read_body
from headrace_console.http.routes import (
    PREFIX,
    answered,
    check_json,
    error_response,
    json_response,
)
from headrace_console.http.server_state import ServerState
from headrace_console.http.sessions import ConsoleUser, Session
from headrace_console.http.streams import Streams, failed_stream
from headrace_console.problem import ConsoleError, as_console_error
from storage_engine.core.errors import HeadraceError

STATIC = Path(__file__).parents[1] / "static"
_LOG_IN_BYTES = 10_000
END_IDLE_EVERY_S = 30


def application(state: ServerState, *, hosts: Iterable[str]) -> ASGIApp:
    """Return the application with all its routes. `hosts`: see RequestGuard."""
    streams = Streams()
    scheme = "https" if state.settings.uses_tls else "http"
    routes = [
        Route("/", _page),
        Route("/healthz", _healthz),
        Mount("/static", StaticFiles(directory=STATIC, follow_symlink=False)),
        Route(f"{PREFIX}/session", partial(_route, _get_session, state), methods=["GET"]),
        Route(f"{PREFIX}/login", partial(_route, _log_in, state), methods=["POST"]),
        Route(f"{PREFIX}/logout", partial(_route, _log_out, state), methods=["POST"]),
        Route(
            f"{PREFIX}/queries/progress",
            partial(_route, api_queries.post_progress, state),
            methods=["POST"],
        ),
        Route(
            f"{PREFIX}/topics/{{topic}}/messages/stream",
            partial(_stream, streams, state),
            methods=["GET"],
        ),
    ]
    for module in (api_cluster, api_messages, api_groups, api_queries, api_topics, api_schemas):
        routes += module.ROUTES.starlette_routes(state)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        state.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_idle_sessions, state)
            yield
            tasks.cancel_scope.cancel()
        await to_thread.run_sync(state.close)

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _not_found, 405: _wrong_method},
    )
    return RequestGuard(app, hosts=hosts, scheme=scheme)


async def _end_idle_sessions(state: ServerState) -> None:
    while True:
        await anyio.sleep(END_IDLE_EVERY_S)
        state.sessions.end_idle()


async def _page(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _not_found(request: Request, _: Exception) -> Response:
    if request.url.path.startswith("/api/"):
        return error_response(ConsoleError("not_found", "the API has no such path"))
    return PlainTextResponse("there is no such page\n", status_code=404)


async def _wrong_method(_: Request, __: Exception) -> Response:
    error = ConsoleError("bad_request", "this path does not support this HTTP method")
    return json_response(error.document, 405)


async def _route(
    work: Callable[[ServerState, Request], Awaitable[Response]],
    state: ServerState,
    request: Request,
) -> Response:
    return await answered(work(state, request))


async def _stream(streams: Streams, state: ServerState, request: Request) -> Response:
    try:
        return await streams.messages(state, request)
    except HeadraceError as error:
        return failed_stream(as_console_error(error), request)


# --- sessions


async def _get_session(state: ServerState, request: Request) -> Response:
    session = state.session_of(request)
    is_new = session is None
    if session is None:
        session = state.anonymous_session()
    return await _session_answer(state, session, is_new=is_new)


async def _session_answer(state: ServerState, session: Session | None, *, is_new: bool) -> Response:
    document = state.session_document(session)
    document |= await to_thread.run_sync(state.cluster_document, session)
    response = json_response(document)
    if session is not None and is_new:
        response.set_cookie(
            state.cookie,
            session.id,
            httponly=True,
            samesite="strict",
            secure=state.settings.uses_tls,
            path="/",
        )
    return response


async def _log_in(state: ServerState, request: Request) -> Response:
    check_json(request)
    if not state.settings.needs_log_in:
        raise ConsoleError("bad_request", "this console has no log-in: the cluster is open")
    body = Body.parse(await read_body(request.stream(), most_bytes=_LOG_IN_BYTES))
    user = "" if state.settings.mechanism is None else body.text("user", most=200)
    password = body.text("password", most=1_000)
    address = "?" if request.client is None else request.client.host
    state.log_ins.check(address, user)
    # Counted before the attempt, so that concurrent attempts are limited, too.
    state.log_ins.failed(address, user)
    found: list[ConsoleUser] = []
    given_up = threading.Event()

    def check() -> None:
        found.append(state.check_log_in(user, password))
        if given_up.is_set():
            _drop(found)

    with anyio.move_on_after(ANSWER_TIMEOUT_S):
        try:
            await to_thread.run_sync(check, abandon_on_cancel=True)
        except BaseException:
            # Nobody waits any more; whichever thread comes first closes what `check` has opened.
            given_up.set()
            _drop(found)
            raise
        principal = found.pop()
        state.log_ins.succeeded(address, user)
        before = state.session_of(request)
        if before is not None:
            state.sessions.end(before)
        return await _session_answer(state, state.sessions.begin(principal), is_new=True)
    raise ConsoleError("no_answer", "the cluster did not answer in time; try again")


def _drop(found: list[ConsoleUser]) -> None:
    with contextlib.suppress(IndexError):
        principal = found.pop()
        if principal.user is not None:
            principal.close()


async def _log_out(state: ServerState, request: Request) -> Response:
    session = state.session_of(request)
    if session is not None:
        session.check_csrf(request.headers.get("x-csrf-token"))
        state.sessions.end(session)
    response = json_response(state.session_document(None))
    response.delete_cookie(state.cookie, path="/")
    return response
