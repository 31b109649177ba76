"""Pieces of frames as bytes."""

from collections.abc import Iterable
from typing import Any


def joined(buffers: Iterable[Any]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)
