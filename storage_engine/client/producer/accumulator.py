"""Records on their way into batches.

    add -> open group of its partition -> closed (full, or followed by a table) -> taken in order
                                       -> open, but lingered long enough        -> taken

Rule: groups of one partition are taken in the order in which they were begun, and an open one only
when nothing of its partition waits further on, so that batches grow while brokers are slow. Neither
threads nor clocks in here: the caller has both. Source: R-CLI1, R-CLI7.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.protocol.records.records import EncodedBatch

RECORD_OVERHEAD_BYTES = 25
"""What a record takes beside its payload at most: length 4, attributes 1, timestamp delta 6, offset
delta 3, lengths 4 + 4, header count 3; more only for times 70 years apart."""

BATCH_OVERHEAD_BYTES = 61
HEADER_OVERHEAD_BYTES = 10

Headers = list[tuple[str, bytes | None]]

Waiter = TypeVar("Waiter")


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch at most."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


class RecordGroup(Generic[Waiter]):
    """The records of one batch, and who waits for them."""

    __slots__ = (
        "begun_ms",
        "closed",
        "encoded",
        "finished",
        "headers",
        "keys",
        "reserved",
        "size",
        "taken",
        "timestamps",
        "tp",
        "values",
        "waiters",
    )

    def __init__(
        self, tp: TopicPartition, begun_ms: int, encoded: "EncodedBatch | None" = None
    ) -> None:
        self.tp = tp
        self.begun_ms = begun_ms
        self.encoded = encoded
        """Made by the caller; then there are no rows here."""
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.timestamps: list[int] = []
        self.waiters: list[Waiter] = []
        """One per record, or one for a batch that is made already."""
        self.size = BATCH_OVERHEAD_BYTES if encoded is None else len(encoded)
        self.reserved = 0
        """Of `buffer.memory`."""
        self.taken = False
        self.closed = encoded is not None
        self.finished = False


class Accumulator(Generic[Waiter]):
    """`batch_bytes` and `linger_ms` are `batch.size` and `linger.ms`. Times are monotonic ms."""

    def __init__(self, *, batch_bytes: int, linger_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._groups: dict[TopicPartition, deque[RecordGroup[Waiter]]] = {}
        self._flush = False

    def room_for(
        self, tp: TopicPartition, size: int, now_ms: int
    ) -> tuple[RecordGroup[Waiter], bool]:
        """The open group for a record of `size` bytes, and whether somebody should look at
        `take`, since a group was begun or closed."""
        groups = self._groups.setdefault(tp, deque())
        if groups and not groups[-1].closed:
            if groups[-1].size + size <= self._batch_bytes:
                return groups[-1], False
            groups[-1].closed = True
        group: RecordGroup[Waiter] = RecordGroup(tp, now_ms)
        groups.append(group)
        return group, True

    def filled(self, group: RecordGroup[Waiter]) -> bool:
        """Whether the group is full by now; it is closed then."""
        if group.size < self._batch_bytes:
            return False
        group.closed = True
        return True

    def add_encoded(self, group: RecordGroup[Waiter]) -> None:
        """A batch that is made already, after everything that came before it."""
        groups = self._groups.setdefault(group.tp, deque())
        if groups:
            groups[-1].closed = True
        groups.append(group)

    def take(
        self, now_ms: int, waiting: Callable[[TopicPartition], bool]
    ) -> Iterator[RecordGroup[Waiter]]:
        """Groups to send now. `waiting`: whether something of a partition waits further on."""
        for tp, groups in list(self._groups.items()):
            while groups and (groups[0].closed or self._lingered(groups[0], now_ms, waiting)):
                group = groups.popleft()
                group.taken = True
                yield group
            if not groups:
                del self._groups[tp]
        if not self._groups:
            self._flush = False

    def due_in_ms(self, now_ms: int, waiting: Callable[[TopicPartition], bool]) -> int | None:
        """When `take` will have something, as far as that is a matter of time; 0: now."""
        first = None
        for tp, groups in self._groups.items():
            if groups[0].closed:
                return 0
            if not waiting(tp):
                due_ms = 0 if self._flush else groups[0].begun_ms + self._linger_ms
                first = due_ms if first is None else min(first, due_ms)
        return None if first is None else max(0, first - now_ms)

    def _lingered(
        self,
        group: RecordGroup[Waiter],
        now_ms: int,
        waiting: Callable[[TopicPartition], bool],
    ) -> bool:
        due = self._flush or group.begun_ms + self._linger_ms <= now_ms
        return due and not waiting(group.tp)

    def flush(self) -> None:
        """What is here lingers no more."""
        self._flush = bool(self._groups)

    def drop(self) -> list[RecordGroup[Waiter]]:
        """Everything, as it will not be sent."""
        dropped = [group for groups in self._groups.values() for group in groups]
        self._groups.clear()
        self._flush = False
        return dropped

    def __bool__(self) -> bool:
        return bool(self._groups)
