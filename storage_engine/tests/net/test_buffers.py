"""Memory for large frames is used again when nobody looks at it; long answers are sent in turns."""

import os

import pytest

from storage_engine.net.frames import EncryptedWriter, PieceRest, ResponseWriter
from storage_engine.net.limits import TURN_WRITE_BYTES, BufferPool

MIB = 1 << 20


def address(view: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_that_nobody_looks_at_is_used_again():
    pool = BufferPool()
    first = pool.take(MIB)
    where = address(first)
    del first
    assert address(pool.take(MIB - 5)) == where


def test_memory_that_is_looked_at_is_left_alone():
    pool = BufferPool()
    slices = []
    for number in range(20):
        view = pool.take(MIB)
        view[:] = bytes([number]) * MIB
        slices.append(view[1000:2000][10:])
        del view
    for number, piece in enumerate(slices):
        assert bytes(piece) == bytes([number]) * 990


def test_a_view_has_exactly_the_size_asked_for_and_can_be_written():
    pool = BufferPool()
    for size in (1, 65_536, 65_537, 3 * MIB + 1):
        view = pool.take(size)
        assert len(view) == size
        assert not view.readonly


def test_the_pool_keeps_no_more_than_its_limit():
    pool = BufferPool(pooled_max_bytes=4 * MIB)
    held = [pool.take(MIB) for _ in range(10)]
    assert pool._pooled_bytes <= 4 * MIB
    held.clear()
    assert len(pool.take(3 * MIB)) == 3 * MIB
    assert pool._pooled_bytes <= 4 * MIB


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
