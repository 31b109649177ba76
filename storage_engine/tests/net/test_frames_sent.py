"""Long answers are sent in several turns of the loop."""

import os

import pytest

from storage_engine.net.frames import EncryptedWriter, PieceRest, ResponseWriter
from storage_engine.net.limits import TURN_WRITE_BYTES


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
