"""The result of work that is done in pieces, done at once."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def outcome(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
