"""Cuts a byte stream into frames.

    field    bytes  meaning
    length   4      big endian; bytes that follow
    payload  length one request or response

A frame is delivered as soon as its last byte is there, all frames of one read in one run; a
delivered view is valid during the call only, unless the frame was large (then it lives as long as a
view of it is held). Source: R-NET1, R-NET3.
"""

from collections.abc import Callable

from storage_engine.net.buffers import BufferPool
from storage_engine.net.limits import EXACT_RECEIVE_BYTES, LENGTH, LENGTH_BYTES, SCRATCH_BYTES

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

    __slots__ = (
        "_deliver",
        "_expects_large",
        "_frame_max_bytes",
        "_halted",
        "_large",
        "_large_filled",
        "_memory",
        "_rest",
    )

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
        """All present frames were delivered, or the run was halted."""
        raise NotImplementedError

    def _delivery_failed(self, error: Exception) -> None:
        """The receiver of frames raised."""
        raise NotImplementedError

    def _frame_too_large(self, size: int) -> None:
        """A length above the limit, or a negative one."""
        raise NotImplementedError
