"""A stream is cut into frames however it arrives, large ones are received where they stay, and long
answers are sent in several turns of the loop."""

import os
from random import Random

import pytest

from storage_engine.net.frames import (
    EncryptedWriter,
    FrameCutter,
    PieceRest,
    ReceiveMemory,
    ResponseWriter,
)
from storage_engine.net.limits import EXACT_RECEIVE_BYTES, SCRATCH_BYTES, TURN_WRITE_BYTES

KIB = 1024


class Received(FrameCutter):
    """Keeps copies of its frames, and counts what came through the buffer that all share."""

    def __init__(self) -> None:
        super().__init__(ReceiveMemory(), 1 << 30, lambda frame: self.frames.append(bytes(frame)))
        self.frames: list[bytes] = []
        self.shared_bytes = 0

    def feed(self, stream: bytes, at_once: int = 1 << 30) -> None:
        """Gives it the stream as a socket does that always has `at_once` bytes."""
        while stream:
            buffer = self.get_buffer(-1)
            size = min(len(buffer), len(stream), at_once)
            buffer[:size] = stream[:size]
            if buffer.obj is self._memory.scratch.obj:
                self.shared_bytes += size
            self.buffer_updated(size)
            stream = stream[size:]

    def _run_ended(self) -> None:
        """Nothing is collected."""

    def _delivery_failed(self, error: Exception) -> None:
        raise error


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_frames_that_do_not_fit_the_shared_buffer_come_through_it_with_their_beginning_only() -> (
    None
):
    connection = Received()
    payload = bytes(range(256)) * (SCRATCH_BYTES // 256) + b"the end"
    connection.feed(framed(payload))
    assert connection.shared_bytes == SCRATCH_BYTES
    for number in range(2, 5):
        connection.shared_bytes = 0
        connection.feed(framed(payload))
        assert connection.shared_bytes == EXACT_RECEIVE_BYTES
        assert connection.frames == [payload] * number


def test_after_a_small_frame_as_much_as_there_is_room_for_is_received_at_once() -> None:
    connection = Received()
    connection.feed(framed(bytes(SCRATCH_BYTES)))
    assert len(connection.get_buffer(-1)) == EXACT_RECEIVE_BYTES
    connection.feed(framed(b"small"))
    assert len(connection.get_buffer(-1)) == SCRATCH_BYTES
    assert connection.frames == [bytes(SCRATCH_BYTES), b"small"]


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_any_size_are_whole_however_many_bytes_a_read_brings(seed: int) -> None:
    random = Random(seed)
    sizes = (0, 1, 5 * KIB, 63 * KIB, 65 * KIB, 130 * KIB, SCRATCH_BYTES, SCRATCH_BYTES + 5 * KIB)
    payloads = [
        random.randbytes(max(0, random.choice(sizes) - random.randrange(9))) for _ in "12345678"
    ]
    connection = Received()
    stream = b"".join(map(framed, payloads))
    while stream:
        some = random.choice((3, 4, 1000, 64 * KIB, 300 * KIB, 3 << 20))
        connection.feed(stream[:some], random.choice((1 << 30, 90 * KIB)))
        stream = stream[some:]
    assert connection.frames == payloads


def test_a_rest_of_a_rest_is_the_rest_of_the_whole():
    rest = PieceRest.of(PieceRest.of(b"0123456789", 3), 4)
    assert len(rest) == 3
    assert bytes(rest.view()) == b"789"


class TakesAll:
    """A transport and its socket, which take whatever they are given."""

    def __init__(self, monkeypatch) -> None:
        self.sent = bytearray()
        monkeypatch.setattr(os, "writev", lambda _fd, views: sum(map(self.write, views)))

    def write(self, data) -> int:
        self.sent += data
        return len(data)

    def set_write_buffer_limits(self, high) -> None:
        """Never reached."""

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class MappedSlice:
    """A slice of a log whose pages can't be touched, only read by system calls."""

    def __init__(self, data: bytes, *, viewable: int) -> None:
        self._data, self._viewable = data, viewable

    def __len__(self) -> int:
        return len(self._data)

    def view(self) -> memoryview:
        assert self._viewable, "it is touched"
        self._viewable -= 1
        return memoryview(self._data)

    def read_part(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]


@pytest.mark.parametrize("kind", [ResponseWriter, EncryptedWriter])
def test_a_long_answer_takes_several_turns_of_the_loop(monkeypatch, kind):
    transport = TakesAll(monkeypatch)
    writer = kind(transport, 0)
    answer = [b"head", bytes(range(256)) * 20_000, b"tail"]
    writer.pieces += answer
    turns = 0
    while writer.pieces:
        before = len(transport.sent)
        writer.flush()
        turns += 1
        assert len(transport.sent) - before <= TURN_WRITE_BYTES
        assert writer.has_more == bool(writer.pieces)
    assert turns == 3
    assert transport.sent == b"".join(answer)


def test_the_small_rest_of_a_mapped_slice_is_copied_by_a_system_call(monkeypatch):
    transport = TakesAll(monkeypatch)
    writer = ResponseWriter(transport, 0)
    data = bytes(range(256)) * (TURN_WRITE_BYTES // 256) + b"the rest"
    writer.pieces.append(MappedSlice(data, viewable=2))
    writer.flush()
    assert writer.has_more
    writer.flush()
    assert transport.sent == data
