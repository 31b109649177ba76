"""The checks of every request before its route, and the headers of every answer.

A page of another site can make a browser send requests here; and by a name that leads to this
machine (DNS rebinding) it could even read the answers. So the Host must be one of the console's,
and so must the Origin, where a browser names it. Source: R-CON3.
"""

from collections.abc import AsyncIterator, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace_console.problem import ConsoleError

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
API = "/api/"
_OTHER_SITES = ("cross-site", "same-site")
"""Refused values of Sec-Fetch-Site; same-site is another port of this host."""

MOST_BODY_BYTES = 4 << 20
"""The most bytes of a request: a record to produce may have 900 KB, more in base64."""


class RequestGuard:
    """Wraps the application: checks requests, and adds headers to answers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], scheme: str) -> None:
        """`hosts`: allowed Host headers, with the port unless it is the scheme's own."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"{scheme}://{host}" for host in self._hosts)
        self._is_encrypted = scheme == "https"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headed = _with_headers(send, scope["path"], is_encrypted=self._is_encrypted)
        try:
            self._check(scope)
        except ConsoleError as error:
            answer = JSONResponse(error.document, status_code=error.status)
            await answer(scope, receive, headed)
            return
        await self._app(scope, receive, headed)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            raise ConsoleError(
                "foreign_host",
                f"the Host header must be one of {', '.join(sorted(self._hosts))}; give other "
                "names of this machine with --allowed-host",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise ConsoleError("foreign_origin", "a page of another origin has sent this request")
        if scope["path"].startswith(API) and headers.get("sec-fetch-site") in _OTHER_SITES:
            raise ConsoleError("foreign_origin", "a page of another site has sent this request")


def _with_headers(send: Send, path: str, *, is_encrypted: bool) -> Send:
    async def headed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            headers["content-security-policy"] = CONTENT_SECURITY_POLICY
            headers["x-content-type-options"] = "nosniff"
            headers["x-frame-options"] = "DENY"
            headers["referrer-policy"] = "no-referrer"
            headers["cross-origin-opener-policy"] = "same-origin"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers["permissions-policy"] = "camera=(), microphone=(), geolocation=()"
            if path.startswith(API):
                headers["cache-control"] = "no-store"
            else:
                # Another version of the console may run here tomorrow.
                headers["cache-control"] = "no-cache"
            if is_encrypted:
                headers["strict-transport-security"] = "max-age=31536000"
        await send(message)

    return headed


async def read_body(receive_stream: AsyncIterator[bytes], *, most_bytes: int) -> bytes:
    """Return the body of a request; ConsoleError too_large once it exceeds `most_bytes`."""
    parts: list[bytes] = []
    size = 0
    async for part in receive_stream:
        size += len(part)
        if size > most_bytes:
            raise ConsoleError(
                "too_large", f"the request has more than {most_bytes} bytes; send less at a time"
            )
        parts.append(part)
    return b"".join(parts)
