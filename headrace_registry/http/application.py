"""The application: each request is bounded, belongs to somebody, and is answered in JSON.

Source: R-SR1.
"""

import logging
from urllib.parse import parse_qsl

import anyio
from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace_registry.access.principals import Principals
from headrace_registry.access.rights import Everybody, Viewer
from headrace_registry.forwarding import HEADER, POSITION, Forwarded, RawRequest
from headrace_registry.http import schema_routes, setting_routes, subject_routes, topic_routes
from headrace_registry.http.calls import QueryParams, RegistryCall
from headrace_registry.http.routing import Answer, Handler, Routes
from headrace_registry.registry_service import RegistryService
from storage_engine.core.errors import AuthenticationError, DeadlineExceededError, HeadraceError
from storage_engine.core.schemas.registry.records import encode_json
from storage_engine.core.schemas.registry.registry_error import (
    STORE_FAILED,
    TIMED_OUT,
    RegistryError,
)

MOST_BODY_BYTES = 6 << 20
"""A schema of 5 MB is told to be too large, and not cut off."""
MOST_READS, MOST_WRITES, MOST_LOG_INS = 40, 40, 20
"""Requests at work; others wait. Those that write may wait for an election."""
MOST_PARAMS = 50

V1 = "application/vnd.schemaregistry.v1+json"
_JSON = "application/json"
_BODY_TYPES = (V1, "application/vnd.schemaregistry+json", _JSON, "application/octet-stream")
_WRITE_METHODS = ("PUT", "DELETE")

log = logging.getLogger(__name__)

ROUTES = Routes()


@ROUTES.add("GET", "/")
def _root(call: RegistryCall) -> Answer:
    return {}


for _module in (subject_routes, schema_routes, setting_routes, topic_routes):
    ROUTES.include(_module.ROUTES)


class Application:
    """An ASGI application. It has no other paths than the routes' and /healthz."""

    def __init__(self, service: RegistryService, principals: Principals) -> None:
        self._service = service
        self._principals = principals
        self._reads = anyio.CapacityLimiter(MOST_READS)
        self._writes = anyio.CapacityLimiter(MOST_WRITES)
        self._log_ins = anyio.CapacityLimiter(MOST_LOG_INS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if scope["path"] == "/healthz":
            await Response(b"ok\n", media_type="text/plain")(scope, receive, send)
            return
        try:
            response = await self._answered(request)
        except RegistryError as error:
            response = _failed(error)
        except AuthenticationError as error:
            response = _failed(RegistryError(401, str(error)))
        except DeadlineExceededError as error:
            response = _failed(RegistryError(TIMED_OUT, f"the brokers do not answer: {error}"))
        except HeadraceError as error:
            response = _failed(RegistryError(STORE_FAILED, str(error)))
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a request has failed")
            response = _failed(RegistryError(500, "the registry met an error; see its log"))
        accepted = request.headers.get("accept", "")
        is_plain = _JSON in accepted and V1 not in accepted
        response.headers["content-type"] = _JSON if is_plain else V1
        response.headers["x-content-type-options"] = "nosniff"
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        raw_path = request.scope["raw_path"].decode("ascii", "strict")
        found = ROUTES.find(method, raw_path)
        query = request.scope["query_string"].decode("ascii", "replace")
        params = _params(query)
        # Nobody sends a body before it is known who they are.
        viewer = await self._viewer(request)
        registers = found.handler is subject_routes.register
        raw = RawRequest(
            method=method,
            target=f"{raw_path}?{query}" if query else raw_path,
            body=await _body(request),
            headers={
                name: request.headers[name]
                for name in ("authorization", "content-type", "accept")
                if name in request.headers
            },
            is_forwarded=HEADER in request.headers,
            is_repeatable=method == "PUT" or registers,
        )
        call = RegistryCall(
            service=self._service, viewer=viewer, path=found.path, params=params, raw=raw
        )
        is_write = method in _WRITE_METHODS or registers
        return await to_thread.run_sync(
            self._handled,
            found.handler,
            call,
            abandon_on_cancel=True,
            limiter=self._writes if is_write else self._reads,
        )

    async def _viewer(self, request: Request) -> Viewer:
        if not self._principals.are_needed:
            return Everybody()
        address = "?" if request.client is None else request.client.host
        return await to_thread.run_sync(
            self._principals.viewer,
            request.headers.get("authorization"),
            address,
            abandon_on_cancel=True,
            limiter=self._log_ins,
        )

    def _handled(self, handler: Handler, call: RegistryCall) -> Response:
        answer = handler(call)
        if isinstance(answer, Forwarded):
            return Response(answer.body, answer.status)
        response = Response(answer if isinstance(answer, bytes) else encode_json(answer))
        if call.raw.is_forwarded:
            response.headers[POSITION] = str(self._service.position)
        return response


def _params(query: str) -> QueryParams:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, max_num_fields=MOST_PARAMS, errors="strict"
        )
    except ValueError:
        raise RegistryError(400, "the query is not UTF-8, or has too many parameters") from None
    return QueryParams(values=dict(pairs))


async def _body(request: Request) -> bytes:
    """The body; RegistryError 413 for a large one, 415 for one that is not said to be JSON."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= MOST_BODY_BYTES:
            parts.append(part)
        else:
            # Read to its end, or the client would see no answer.
            parts.clear()
    if size > MOST_BODY_BYTES:
        raise RegistryError(413, f"the body has more than {MOST_BODY_BYTES} bytes")
    if size and request.method in ("POST", "PUT"):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _BODY_TYPES:
            raise RegistryError(415, f"HTTP 415 Unsupported Media Type: send {V1} or {_JSON}")
    return b"".join(parts)


def _failed(error: RegistryError) -> Response:
    response = Response(
        encode_json({"error_code": error.code, "message": str(error)}), error.status
    )
    if error.code == 401:
        response.headers["www-authenticate"] = 'Basic realm="registry"'
    return response
