"""Work that waits for something that many share, such as a thread, and in which they take turns;
and room that many share, such as memory, which nobody can fill for the others.

    share    the one that the work is for: a principal, its address, its connection
    used     how much a share has used so far; the one that has used least comes next

At each level the share that has used least is next, so that a principal with a thousand connections
gets as much as one with a single connection, and one whose work is large waits longer than one
whose work is small. A share that was idle begins where the others are: it has no credit for the
time without work. Of room a share gets no more than is left free after it: one alone gets half, two
a third each, and whoever comes new always finds some. Source: start-time fair queueing (Goyal, Vin
and Cheng, 1996), dynamic thresholds (Choudhury and Hahne, 1998).
"""

from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")

Share = tuple[Hashable, ...]
"""Names from the coarsest level to the finest; all shares of a queue have as many levels."""

FIRST = "brokers that are allowed to act as such"
"""A share of the coarsest level that waits for no other one."""

KEPT_MAX = 1000
"""Shares of a level that are remembered without work: clients choose how many there are."""


class _Node(Generic[Item]):
    """A share, and the shares below it."""

    __slots__ = ("below", "items", "now", "order", "taken", "used", "waiting")

    def __init__(self) -> None:
        self.used = 0
        self.waiting = 0
        """The number of items that wait here and below."""
        self.taken = 0
        """The number of items that were taken and are not done."""
        self.items: deque[tuple[Item, int]] = deque()
        """The items of a share of the finest level, with their sizes."""
        self.below: dict[Hashable, _Node[Item]] = {}
        self.order: list[tuple[int, int, Hashable]] = []
        """A heap of the shares below with items: usage when pushed, serial number, name."""
        self.now = 0
        """The usage of the share below taken last, never decreasing; new shares begin with it."""


class FairQueue(Generic[Item]):
    """Items in the order in which they are to be worked on."""

    def __init__(self, each: int | None = None) -> None:
        """`each`: the most items of a share of the coarsest level that are taken and not done."""
        self._each = each
        self._root: _Node[Item] = _Node()
        self._number = 0
        self._sweep_at = KEPT_MAX

    def __len__(self) -> int:
        return self._root.waiting

    def put(self, share: Share, item: Item, size: int = 1) -> None:
        """`size`: what the item will use, as far as it is known."""
        node = self._root
        node.waiting += 1
        for level, name in enumerate(share):
            child = node.below.get(name)
            if child is None:
                self._make_room(node)
                child = node.below[name] = _Node()
            child.waiting += 1
            if child.waiting == 1:
                child.used = -1 if name is FIRST else max(child.used, node.now)
                if level or self._may_take(child):
                    self._line_up(node, name, child)
            node = child
        node.items.append((item, size))

    def take(self) -> tuple[Share, Item] | None:
        """Return the next item with its share; None where none may be taken."""
        node, share = self._root, []
        while node.order:
            used, _, name = heappop(node.order)
            child = node.below[name]
            if used < child.used:
                # It has used more since it was put there.
                self._line_up(node, name, child)
                continue
            node.now = max(node.now, used)
            share.append(name)
            node = child
        if not share:
            return None
        item, size = node.items.popleft()
        self._taken(share, size)
        return tuple(share), item

    def done(self, share: Share, more: int = 0) -> None:
        """End the work on an item of the share. `more`: the item's usage beyond its size."""
        node = self._root
        for level, name in enumerate(share):
            child = node.below[name]
            was_full = not level and not self._may_take(child)
            child.taken -= 1
            _charge(child, name, more)
            if was_full and child.waiting:
                self._line_up(node, name, child)
            node = child

    def _taken(self, share: list[Hashable], size: int) -> None:
        node = self._root
        node.waiting -= 1
        for level, name in enumerate(share):
            child = node.below[name]
            child.waiting -= 1
            child.taken += 1
            _charge(child, name, max(1, size))
            if child.waiting and (level or self._may_take(child)):
                self._line_up(node, name, child)
            node = child

    def _may_take(self, child: _Node[Item]) -> bool:
        return self._each is None or child.taken < self._each

    def _line_up(self, node: _Node[Item], name: Hashable, child: _Node[Item]) -> None:
        self._number += 1
        heappush(node.order, (child.used, self._number, name))

    def _make_room(self, node: _Node[Item]) -> None:
        """Forget idle shares where there are many: if possible only shares that have used no more
        than a new share is charged."""
        if len(node.below) < self._sweep_at:
            return
        idle = [name for name, each in node.below.items() if not each.waiting and not each.taken]
        spent = [name for name in idle if node.below[name].used <= node.now]
        for name in spent or idle:
            del node.below[name]
        self._sweep_at = max(KEPT_MAX, 2 * len(node.below))


def _charge(child: _Node[Item], name: Hashable, size: int) -> None:
    if name is not FIRST:
        child.used += size


class SharedRoom:
    """A number of bytes that shares divide among themselves."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._used_by: dict[Share, int] = {}
        """The bytes in use, by share and by each of its coarser levels."""

    def take(self, share: Share, size: int) -> bool:
        """Take bytes; False if the share may not have them. Any size fits while none are used."""
        free = self.most - self.used - size
        if self.used and any(
            self._used_by.get(share[:level], 0) + size > free for level in range(1, len(share) + 1)
        ):
            return False
        self.used += size
        for level in range(1, len(share) + 1):
            self._used_by[share[:level]] = self._used_by.get(share[:level], 0) + size
        return True

    def give_back(self, share: Share, size: int) -> None:
        """Free bytes that the share has taken."""
        self.used -= size
        for level in range(1, len(share) + 1):
            # A share without bytes is not kept, even if it took none.
            left = self._used_by.get(share[:level], 0) - size
            if left:
                self._used_by[share[:level]] = left
            else:
                self._used_by.pop(share[:level], None)
