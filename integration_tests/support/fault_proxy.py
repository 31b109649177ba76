"""A TCP proxy that misbehaves when told: it holds bytes back, one way or both, cuts, or delays.

Bytes that it holds back are delivered later, in order, or never, as by a network that drops packets
under TCP.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_API_KEY = slice(4, 6)
"""Of a request that begins with this chunk."""


class FaultProxy:
    """Forwards a port of its own to `target`, on a thread; told what to do from any thread."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._to_target = asyncio.Event()
        self._from_target = asyncio.Event()
        self._refusing = False
        self._delay_s = 0.0
        self._unanswered: bytes | None = None
        """The key of an API, as on the wire: whoever asks it hears nothing more."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    # --- faults ---

    def heal(self) -> None:
        """Forward everything, what was held back first."""

        def change() -> None:
            self._refusing = False
            self._unanswered = None
            self._delay_s = 0.0
            self._to_target.set()
            self._from_target.set()

        self._on_loop(change)

    def hold(self, *, to_target: bool = True, from_target: bool = True) -> None:
        """Nothing arrives any more in those directions; connections stay open and new ones are
        taken."""

        def change() -> None:
            if to_target:
                self._to_target.clear()
            if from_target:
                self._from_target.clear()

        self._on_loop(change)

    def hold_from(self, api_key: int) -> None:
        """Once a request of that API has arrived, let no answer through."""

        def change() -> None:
            self._unanswered = api_key.to_bytes(2)

        self._on_loop(change)

    def cut(self) -> None:
        """Break all connections and, until `heal`, every new one."""

        def change() -> None:
            self._refusing = True
            for writer in self._writers:
                writer.transport.abort()

        self._on_loop(change)

    def delay(self, seconds: float) -> None:
        """Each chunk arrives that much later, both ways."""

        def change() -> None:
            self._delay_s = seconds

        self._on_loop(change)

    # --- on the loop ---

    def _on_loop(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(60), "the proxy's loop does not take it"

    async def _open(self) -> None:
        self._to_target.set()
        self._from_target.set()
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        # All there are: one that was accepted just now has not begun.
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the proxy closes
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            return
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, self._to_target))
                both.create_task(self._pump(there, writer, self._from_target))
        except* (OSError, _EndOfStream):
            pass
        finally:
            self._writers -= {writer, back}
            back.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while chunk := await source.read(_CHUNK_BYTES):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if gate is self._to_target and chunk[_API_KEY] == self._unanswered:
                self._from_target.clear()
            await gate.wait()
            sink.write(chunk)
            await sink.drain()
        with contextlib.suppress(OSError):
            await sink.drain()
        raise _EndOfStream


class _EndOfStream(Exception):
    """One side has closed: so does the other."""
