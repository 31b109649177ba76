"""A member's connection: one request at a time, in asyncio's loop.

Rule: thousands of them share one process, so that each is a protocol of asyncio and no stream.
"""

import asyncio
import resource
from collections.abc import Awaitable
from typing import Self

from storage_engine.net.frames import joined
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.framing import encode_request_frame, parse_response
from storage_engine.tools.errors import CommandError

CLIENT_ID = "headrace-bench"
_LENGTH_BYTES = 4
_SPARE_FILES = 500
"""Descriptors for all that is neither."""


class MemberConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._number = 0

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Self:
        """Connect. OSError when nobody accepts."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, *address)
        return connection

    async def ask(self, spec: ApiSpec[Req, Resp], version: int, request: Req) -> Resp:
        """Send a request, and return its answer. CommandError when the broker closes first."""
        answer = await self.begin(spec, version, request)
        return parse_response(spec, version, memoryview(answer))

    def begin(self, spec: ApiSpec[Req, Resp], version: int, request: Req) -> Awaitable[bytes]:
        """Send a request whose answer, a frame without its length, may come much later."""
        if self._transport is None:
            raise CommandError("the broker closed a connection of the benchmark between requests")
        assert self._waiting is None, "one request at a time"
        self._number += 1
        self._transport.write(
            joined(encode_request_frame(spec, version, self._number, CLIENT_ID, request))
        )
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def close(self) -> None:
        """Close; nobody hears of an answer that is owed."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES], "big")
        if len(self._received) < max(size, _LENGTH_BYTES):
            return
        frame, self._received = bytes(self._received[_LENGTH_BYTES:size]), bytearray()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(
                CommandError(f"the broker closed a connection of the benchmark: {exc}")
            )


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, which brokers that it starts inherit: a broker
    keeps half of them for logs. CommandError where the system does not allow so many."""
    needed = 2 * count + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY,) and hard < needed:
        raise CommandError(
            f"{count} connections need {needed} open files, {hard} are allowed: raise 'ulimit -Hn',"
            " or measure fewer members"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
