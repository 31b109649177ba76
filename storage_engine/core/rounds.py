"""Work on a whole table in pieces, with the turns of others between them. Its size is chosen by
clients, so nothing that looks at all of it may be one step."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

PIECE = 500
"""Entries that are looked at in one step, some µs each."""

T = TypeVar("T")


def pieces(items: Iterable[T], size: int = PIECE) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the table is copied before, since it may change between
    the pieces. The last piece is followed by none that is empty."""
    left = iter(list(items))
    while piece := list(islice(left, size)):
        yield piece
