"""Routes of queries and sinks; and the route to which queries post, which has no session."""

import hmac

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headrace_console.http.api_cluster import now_ms, visible_queries
from headrace_console.http.guard import read_body
from headrace_console.http.routes import Call, RouteTable, check_json
from headrace_console.http.server_state import ServerState
from headrace_console.problem import ConsoleError
from headrace_console.queries.progress_post import MOST_BYTES, parse_post
from headrace_console.queries.query_store import SparkQuery
from headrace_console.screens.queries import query_document, query_list
from headrace_console.screens.waiting import NoSinksError, ask_sinks, sink_list, sink_row
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.document import Document

ROUTES = RouteTable()


@ROUTES.add("GET", "/queries")
def get_queries(call: Call) -> Document:
    is_secured = call.state.settings.mechanism is not None
    snapshot = call.watcher.snapshot() if is_secured else None
    queries = visible_queries(call, snapshot)
    return query_list(queries, call.page(), call.state.settings.thresholds, now_ms())


@ROUTES.add("GET", "/queries/{query}")
def get_query(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    query = next(
        (each for each in visible_queries(call, snapshot) if each.id == call.path["query"]), None
    )
    if query is None:
        raise ConsoleError(
            "not_found",
            "no query with this id has posted its progress here; see connector.QueryMetrics",
        )
    document = query_document(query, snapshot, call.state.settings.thresholds, now_ms())
    return document | _sink_fields(call, query)


def _sink_fields(call: Call, query: SparkQuery) -> Document:
    """Return the sink's state from its coordinator; without it the page is shown all the same."""
    sink = query.sink_id or query.id
    snapshot = call.watcher.snapshot()
    try:
        rows, silent = call.upstream.ask_brokers(lambda lines: ask_sinks(lines, snapshot, [sink]))
    except NoSinksError:
        return {}
    except HeadraceError as error:
        return {"unanswered": [{"broker": None, "what": "its sink", "why": str(error)}]}
    found = [sink_row(*row) for row in rows if row[1].query == query.id]
    return {"unanswered": silent} | ({"sink_state": found[0]} if found else {})


@ROUTES.add("GET", "/sinks")
def get_sinks(call: Call) -> Document:
    snapshot = call.watcher.snapshot()
    return call.upstream.ask_brokers(lambda lines: sink_list(lines, snapshot, call.page()))


async def post_progress(state: ServerState, request: Request) -> Response:
    """Accept a post of `connector.QueryMetrics`: of a program, not of a browser."""
    if request.headers.get("x-headrace-progress") != "1":
        raise ConsoleError("csrf", "a post of progress needs the header X-Headrace-Progress: 1")
    if request.headers.get("origin") is not None:
        raise ConsoleError("foreign_origin", "progress is posted by queries, not by pages")
    check_json(request)
    _check_token(state, request.headers.get("authorization"))
    if not state.queries.has_room():
        raise ConsoleError("too_many", "too many posts in this second", retry_after_s=1)
    data = await read_body(request.stream(), most_bytes=MOST_BYTES)
    state.queries.add(await to_thread.run_sync(parse_post, data))
    return Response(status_code=204)


def _check_token(state: ServerState, given: str | None) -> None:
    if not state.settings.wants_progress_token:
        return
    token = state.settings.progress_token
    if token is None:
        raise ConsoleError(
            "not_allowed",
            "this console accepts no progress of queries: start it with --progress-token-file",
        )
    expected = f"Bearer {token.reveal()}".encode()
    if not hmac.compare_digest(expected, (given or "").encode("utf-8", "replace")):
        raise ConsoleError(
            "log_in", "the progress token is wrong; see the file of --progress-token-file"
        )
