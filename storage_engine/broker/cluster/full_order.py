"""Orders of a controller that name all there is, in several requests. A part counts only after
those before it, and nothing counts as missing before the last one has arrived.

The controller sends each part after the answer to the one before. When an answer is missing, it
sends all parts again, under another number.
"""

from typing import Protocol

from storage_engine.broker.cluster.order_gate import Order
from storage_engine.core.ids import TopicPartition


class OrderPart(Order, Protocol):
    """A request that may be one of several."""

    @property
    def part(self) -> int: ...


class FullOrder:
    """Tracks the parts of the newest full LeaderAndIsr request that have arrived."""

    def __init__(self) -> None:
        self._order: tuple[int, int, int] | None = None
        self._parts = 0

    def expects(self, request: OrderPart) -> bool:
        """Whether it is the first part of an order, or the next of the one that was begun."""
        return request.part == 0 or (
            self._order == _name_of(request) and request.part == self._parts
        )

    def took(self, request: OrderPart) -> None:
        """The part was carried out."""
        self._order, self._parts = _name_of(request), request.part + 1


def _name_of(request: OrderPart) -> tuple[int, int, int]:
    return request.controller_id, request.controller_epoch, request.order_number


class NamedReplicas(FullOrder):
    """Tracks the partitions named in the parts, too: replicas that a full request does not name are
    stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: set[TopicPartition] = set()

    def note(self, request: OrderPart, partitions: set[TopicPartition]) -> None:
        """The partitions of a part that was carried out."""
        self.took(request)
        if request.part == 0:
            self.partitions = set()
        self.partitions |= partitions
