"""Frames: cut from what comes in, and written as responses, held back until all earlier requests
are answered.

    field    bytes  meaning
    length   4      big endian; bytes that follow
    payload  length one request or response

A frame is delivered as soon as its last byte is there, all frames of one read in one run; a
delivered view is valid during the call only, unless the frame was large (then it lives as long as a
view of it is held).

    respond, in any order -> released in request order -> one send per run

What is answered within a run of requests goes out with it; what is answered later goes at once
when it is all that is owed, else once per turn of the event loop. Up to SMALL_WRITE_BYTES are
joined and sent at once. More goes piece by piece, without a copy while the transport has nothing of
its own to send. Source: R-NET1, R-NET3.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from storage_engine.core.errors import LogStorageError
from storage_engine.core.ports import LogSlice
from storage_engine.net.limits import (
    EXACT_RECEIVE_BYTES,
    IOV_BUFFERS,
    LENGTH,
    LENGTH_BYTES,
    SCRATCH_BYTES,
    SMALL_WRITE_BYTES,
    TLS_WRITE_BYTES,
    TURN_WRITE_BYTES,
    UNSENT_RESPONSE_BUFFERS,
    WRITE_HIGH_WATER_BYTES,
    WRITE_PIECE_BYTES,
    BufferPool,
)

if TYPE_CHECKING:
    # Clients have their own loop, and asyncio takes longer to import than all of theirs.
    import asyncio


Buffer = bytes | bytearray | memoryview
Piece = Buffer | LogSlice
"""A piece of a response."""

ResponseBuffers = Sequence[Piece]


def joined(pieces: ResponseBuffers) -> bytes:
    """Joins small pieces into one bytes object."""
    return b"".join([p if type(p) is bytes else as_buffer(p) for p in pieces])


def as_buffer(piece: Piece) -> Buffer:
    """The bytes of a piece, without a copy."""
    view: Callable[[], memoryview] | None = getattr(piece, "view", None)
    if view is None:
        assert isinstance(piece, bytes | bytearray | memoryview)
        return piece
    return view()


class PieceRest:
    """The unsent part of a piece, whose first `skip` bytes are sent. Each send takes a new view of
    a log's slice: reading a view that was kept while the file was truncated would end the process.
    """

    __slots__ = ("_piece", "_skip")

    def __init__(self, piece: Piece, skip: int) -> None:
        self._piece: Piece = piece
        self._skip = skip

    @classmethod
    def of(cls, piece: Piece, skip: int) -> "PieceRest":
        """The rest of `piece`, which may be a rest itself."""
        if isinstance(piece, cls):
            return cls(piece._piece, piece._skip + skip)
        return cls(piece, skip)

    def __len__(self) -> int:
        return len(self._piece) - self._skip

    def view(self) -> memoryview:
        return memoryview(as_buffer(self._piece))[self._skip :]

    def copy(self, size: int) -> Buffer:
        """A copy of the first `size` bytes that are unsent."""
        read: Callable[[int, int], bytes] | None = getattr(self._piece, "read_part", None)
        if read is not None:
            return read(self._skip, size)
        return self.view()[:size]


def gather(pieces: list[Piece]) -> tuple[list[Buffer], int, list[Piece]]:
    """Views of the first WRITE_PIECE_BYTES, the number of pieces they take, and what is left of
    the last one."""
    views: list[Buffer] = []
    room = WRITE_PIECE_BYTES
    for piece in pieces[:IOV_BUFFERS]:
        view = as_buffer(piece)
        if len(view) > room:
            views.append(memoryview(view)[:room])
            return views, len(views), [PieceRest.of(piece, room)]
        views.append(view)
        room -= len(view)
        if not room:
            break
    return views, len(views), []


def after(views: list[Buffer], written: int) -> list[Buffer]:
    """The rest of `views` after their first `written` bytes."""
    for index, view in enumerate(views):
        if written < len(view):
            return [memoryview(view)[written:], *views[index + 1 :]]
        written -= len(view)
    return []


class ResponseWriter:
    """Sends `pieces`, which the connection appends to, in their order."""

    __slots__ = ("_fd", "_transport", "is_paused", "pieces")

    def __init__(self, transport: "asyncio.Transport", fd: int) -> None:
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._transport = transport
        self._fd = fd
        self.pieces: list[Piece] = []
        """The pieces that are not sent yet."""
        self.is_paused = False
        """True while the transport's buffer is above its high-water mark."""

    def flush(self) -> None:
        """Send as much as the transport takes now, and one turn may: see `has_more`.

        HeadraceError when a slice of a log can't be read any more. Its size may be announced
        already, so no more may be sent.
        """
        pieces = self.pieces
        if not pieces or self.is_paused or self._transport.is_closing():
            return
        if sum(map(len, pieces)) <= SMALL_WRITE_BYTES:
            first = pieces[0]
            if isinstance(first, PieceRest):
                # The rest of a mapped slice: only a system call may read that.
                pieces[0] = first = first.copy(len(first))
            data = first if len(pieces) == 1 and type(first) is bytes else joined(pieces)
            pieces.clear()
            self._transport.write(data)
            return
        left = TURN_WRITE_BYTES
        while left > 0 and pieces and self._may_write():
            left -= self._write_some()

    @property
    def has_more(self) -> bool:
        """Whether this turn of the loop has left something for the next turn to send."""
        return bool(self.pieces) and self._may_write()

    def _may_write(self) -> bool:
        return not self.is_paused and not self._transport.is_closing()

    def _write_some(self) -> int:
        """Offer up to WRITE_PIECE_BYTES to the socket, uncopied. Return the number offered."""
        views, count, rest = gather(self.pieces)
        offered = sum(map(len, views))
        self.pieces[:count] = rest
        if self._transport.get_write_buffer_size() == 0:
            try:
                written = os.writev(self._fd, views)
            except BlockingIOError:
                written = 0
            except OSError as error:
                if error.errno == errno.EFAULT:
                    # A page of a mapped segment that its disk can't give. Nothing here may touch
                    # it: the transport would copy it, which ends the process (SIGBUS). The client
                    # asks again, and the read on a thread then learns what the disk says.
                    raise LogStorageError(
                        "bytes of a log can't be read as they are sent"
                    ) from error
                # The transport meets the same error and reports it as connection_lost.
                written = 0
            if written == offered:
                return offered
            views = after(views, written)
        for view in views:
            self._transport.write(view)
        return offered


class EncryptedWriter(ResponseWriter):
    """The writer of a TLS connection. Bytes of a log are copied from its file, not read where it is
    mapped: the library would end the process at a page that the disk can't give, where a system
    call returns an error."""

    __slots__ = ()

    def _write_some(self) -> int:
        """Encrypt up to TLS_WRITE_BYTES for the transport. Return the number of bytes taken."""
        chunk: list[Buffer] = []
        room = TLS_WRITE_BYTES
        pieces = self.pieces
        while pieces and room:
            rest = PieceRest.of(pieces[0], 0)
            taken = min(room, len(rest))
            chunk.append(rest.copy(taken))
            room -= taken
            if taken < len(rest):
                pieces[0] = PieceRest.of(rest, taken)
            else:
                del pieces[0]
        self._transport.write(b"".join(chunk))
        return TLS_WRITE_BYTES - room


_NOTHING = memoryview(b"")


class ReceiveMemory:
    """The buffer that all connections of an event loop receive into. They can share it because each
    read is consumed before the next one starts. A blocking connection has one of its own."""

    __slots__ = ("head", "pool", "scratch")

    def __init__(self, pool: BufferPool | None = None, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self.scratch = memoryview(bytearray(scratch_bytes))
        self.head = self.scratch[:EXACT_RECEIVE_BYTES]
        """Enough to learn how large the next frame is."""
        self.pool = pool or BufferPool()


class FrameCutter:
    """Receives bytes (`get_buffer`, `buffer_updated`: an asyncio.BufferedProtocol is mixed in where
    there is a loop), and hands each frame to `deliver`; subclasses say what happens at a run's end
    and on errors."""

    head_first_bytes = SCRATCH_BYTES
    """After a frame of this size a read takes only EXACT_RECEIVE_BYTES first: the next frame is
    mostly as large, and of one that does not fit the scratch buffer what is received there is
    copied."""

    def __init__(
        self,
        memory: ReceiveMemory,
        frame_max_bytes: int,
        deliver: Callable[[memoryview], None],
    ) -> None:
        self._memory = memory
        self._frame_max_bytes = frame_max_bytes
        self._deliver = deliver
        # Received and not delivered: the head of the next frame, or whole frames while the run is
        # halted.
        self._rest = _NOTHING
        # A large frame under way, and how much of it is there.
        self._large: memoryview | None = None
        self._large_filled = 0
        # The last frame was so large that the next one mostly is, too.
        self._expects_large = False
        # Set while delivering to end the run after the present frame.
        self._halted = False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        scratch = self._memory.scratch
        rest = self._rest
        if rest:
            scratch[: len(rest)] = rest
            return scratch[len(rest) :]
        return self._memory.head if self._expects_large else scratch

    def buffer_updated(self, nbytes: int) -> None:
        large = self._large
        if large is None:
            self._run(self._memory.scratch, len(self._rest) + nbytes)
            return
        self._large_filled += nbytes
        if self._large_filled == len(large):
            self._large = None
            self._deliver_large(large)

    def _deliver_large(self, frame: memoryview) -> None:
        try:
            self._deliver(frame)
        except Exception as error:  # noqa: BLE001 - reported with the connection's name by the subclass
            self._delivery_failed(error)
        self._run_ended()

    def _run(self, view: memoryview, total: int) -> None:
        """Deliver the whole frames of view[:total], keep the rest."""
        deliver = self._deliver
        unpack = LENGTH.unpack_from
        frame_max_bytes = self._frame_max_bytes
        position = 0
        size = 0
        self._rest = _NOTHING
        self._expects_large = False
        try:
            while not self._halted and total - position >= LENGTH_BYTES:
                start = position + LENGTH_BYTES
                size = unpack(view, position)[0]
                end = start + size
                if end > total or size > frame_max_bytes:
                    break
                deliver(view[start:end])
                position = end
        except Exception as error:  # noqa: BLE001 - reported with the connection's name by the subclass
            self._delivery_failed(error)
            return
        if position < total:
            self._keep(view, position, total, size)
        self._run_ended()

    def _keep(self, view: memoryview, position: int, total: int, size: int) -> None:
        """Keeps bytes that could not be delivered; `size` is that of the frame at `position` when
        it is known."""
        if not self._halted and total - position >= LENGTH_BYTES:
            if size > self._frame_max_bytes:
                self._frame_too_large(size)
                return
            if size > EXACT_RECEIVE_BYTES and self._may_receive(size):
                self._begin_large(view[position + LENGTH_BYTES : total], size)
                return
        rest = view[position:total]
        self._rest = memoryview(bytearray(rest)) if view is self._memory.scratch else rest

    def _may_receive(self, size: int) -> bool:
        """Whether there is memory for a large frame now; else the run is halted by the subclass,
        and its beginning waits."""
        return True

    def _begin_large(self, head: memoryview, size: int) -> None:
        large = self._memory.pool.take(size)
        large[: len(head)] = head
        self._large = large
        self._large_filled = len(head)
        self._expects_large = size >= self.head_first_bytes

    def _deliver_rest(self) -> None:
        """Delivers the frames that a halted run has left."""
        rest = self._rest
        if len(rest) >= LENGTH_BYTES:
            self._run(rest, len(rest))

    def _run_ended(self) -> None:
        """Called when all present frames were delivered, or the run was halted."""
        raise NotImplementedError

    def _delivery_failed(self, error: Exception) -> None:
        """Called with the error that the receiver of frames raised."""
        raise NotImplementedError

    def _frame_too_large(self, size: int) -> None:
        """Called with a length above the limit; a negative length counts as one above it."""
        raise NotImplementedError


_NO_RESPONSE: ResponseBuffers = ()


class Owner(Protocol):
    def halt_run(self) -> None: ...

    def flush_released(self) -> None: ...

    def flush_soon(self) -> None:
        """Has `flush_released` called in the next turn of the event loop."""
        ...


class Exchange:
    """A request, and its response once there is one. Exactly one of `respond` and `skip` is called,
    once."""

    __slots__ = ("_responses", "buffers")

    def __init__(self, responses: "Responses") -> None:
        self._responses = responses
        self.buffers: ResponseBuffers | None = None

    @property
    def closed(self) -> bool:
        """Whether the client is gone, so that a response would go nowhere."""
        return self._responses.closed

    def respond(self, buffers: ResponseBuffers) -> None:
        """Send `buffers` once all earlier requests of the connection are answered. May be called
        at any time, in any order."""
        assert self.buffers is None, "a request was answered twice"
        self.buffers = buffers
        self._responses.answered(self)

    def skip(self) -> None:
        """Answer nothing, as a produce request with acks=0 wants."""
        self.respond(_NO_RESPONSE)


class Responses:
    """The unanswered requests of a connection, in their order, and the responses not sent yet."""

    def __init__(self, connection: Owner) -> None:
        self._connection: Owner | None = connection
        """None when the client is gone, so that nothing keeps the connection."""
        self.exchanges: deque[Exchange] = deque()
        """Requests without a response, or whose response waits for an earlier one."""
        self.writer: ResponseWriter
        """Set once the connection has a transport."""
        self.in_run = False
        """True while a run of requests is delivered: responses made now go out with the run."""
        self.is_flush_due = False
        """True from a call of `flush_soon` until the flush."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._connection is None

    @property
    def none_owed(self) -> bool:
        """Whether all requests are answered, and the responses sent."""
        return not self.exchanges and not self.writer.pieces

    @property
    def are_behind(self) -> bool:
        """Whether the responses must be sent before more requests are read."""
        return self.writer.is_paused or self.writer.has_more

    def close(self) -> None:
        """Drop all requests and responses, because the client is gone."""
        self._connection = None
        self.exchanges.clear()
        self.writer.pieces.clear()

    def answered(self, exchange: Exchange) -> None:
        """Release what can go: answered exchanges at the head of the order."""
        exchanges, connection = self.exchanges, self._connection
        if connection is None or not exchanges or exchanges[0] is not exchange:
            return
        unsent = self.writer.pieces
        while exchanges:
            buffers = exchanges[0].buffers
            if buffers is None:
                break
            exchanges.popleft()
            unsent += buffers
        if self.in_run:
            if len(unsent) > UNSENT_RESPONSE_BUFFERS:
                connection.halt_run()
        elif not exchanges and not self.is_flush_due:
            connection.flush_released()
        elif not self.is_flush_due:
            # More may be answered in this turn.
            self.flush_in_next_turn()

    def flush_in_next_turn(self) -> None:
        connection = self._connection
        if connection is not None:
            self.is_flush_due = True
            connection.flush_soon()
