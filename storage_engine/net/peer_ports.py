"""What the kernels of other machines say of the ports of brokers: `core.ports.PeerPorts`."""

import asyncio
import errno
import socket
from collections.abc import Callable

from storage_engine.core.ports import Endpoint, PortAnswer
from storage_engine.net.peer import PeerTransport

PROBE_TIMEOUT_S = 1.0
"""A port that does not answer by then has not refused: packets are dropped, or its queue of
connections is full."""

_BY_THE_OTHER = frozenset({errno.ECONNRESET, errno.EPIPE})
"""Other errors (no route, no answer) are of the network, not of the other broker."""


class TcpPeerPorts:
    """The connections of a transport, and connections that only try."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: PeerTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._tasks: set[asyncio.Task[None]] = set()

    def on_closed(self, listener: Callable[[Endpoint], None]) -> None:
        def lost(endpoint: Endpoint, error: Exception | None) -> None:
            if error is None or (isinstance(error, OSError) and error.errno in _BY_THE_OTHER):
                listener(endpoint)

        self._transport.on_lost = lost

    def probe(self, endpoint: Endpoint, on_done: Callable[[PortAnswer], None]) -> None:
        async def ask() -> None:
            on_done(await self._answer_of(endpoint))

        task = self._loop.create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer_of(self, endpoint: Endpoint) -> PortAnswer:
        """A refusal is one of every address of the host."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                addresses = await self._loop.getaddrinfo(
                    endpoint.host, endpoint.port, type=socket.SOCK_STREAM
                )
                for address in addresses:
                    if await self._accepts(address):
                        return PortAnswer.ACCEPTED
        except (OSError, TimeoutError, ValueError):
            return PortAnswer.SILENT
        return PortAnswer.REFUSED if addresses else PortAnswer.SILENT

    async def _accepts(self, address: tuple[object, ...]) -> bool:
        """False where it refuses; OSError for any other failure."""
        family, kind, protocol, _, where = address
        with socket.socket(family, kind, protocol) as probe:  # type: ignore[arg-type]
            probe.setblocking(False)
            try:
                await self._loop.sock_connect(probe, where)  # type: ignore[arg-type]
            except ConnectionRefusedError:
                return False
            return True
