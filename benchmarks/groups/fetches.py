"""The owners of partitions, and how long each has not fetched its own: no IO and no clock."""

from collections import Counter
from collections.abc import Iterable

MAX_WAIT_MS = 500
"""How long a broker lets a fetch wait for records; there are none."""


class Ownership:
    """The owners of one topic's partitions, as the members see them."""

    def __init__(self, partitions: int) -> None:
        self._owners: list[set[str]] = [set() for _ in range(partitions)]
        self._counts: Counter[str] = Counter()
        self.changed_s = 0.0
        """When an owner changed last."""

    def change(
        self, member: str, before: Iterable[int], after: Iterable[int], now_s: float
    ) -> None:
        """Take note that a member has revoked or taken partitions."""
        lost, got = set(before) - set(after), set(after) - set(before)
        for partition in lost:
            self._owners[partition].discard(member)
        for partition in got:
            self._owners[partition].add(member)
        self._counts[member] += len(got) - len(lost)
        if lost or got:
            self.changed_s = now_s

    def owners(self) -> list[str | None]:
        """Return the owner of each partition; None for one that has none, or several."""
        return [next(iter(each)) if len(each) == 1 else None for each in self._owners]

    def is_shared_by(self, members: int) -> bool:
        """Whether so many members have all partitions, in parts whose sizes differ by one at
        most."""
        counts = [count for count in self._counts.values() if count]
        return (
            len(counts) == members
            and max(counts) - min(counts) <= 1
            and all(len(each) == 1 for each in self._owners)
        )


class Pauses:
    """The times between two fetches of a partition by its owner."""

    def __init__(self, partitions: int) -> None:
        self._last_s = [0.0] * partitions
        self._longest_s = [0.0] * partitions
        self._owners: list[str | None] = [None] * partitions

    def begin(self, owners: list[str | None]) -> None:
        """Begin a window: only gaps that end from now on count."""
        self._owners = owners
        self._longest_s = [0.0] * len(owners)

    def fetched(self, member: str, partitions: Iterable[int], now_s: float) -> None:
        """Take note of an answer to a fetch of these partitions."""
        for partition in partitions:
            if self._owners[partition] == member:
                gap_s = now_s - self._last_s[partition]
                self._longest_s[partition] = max(self._longest_s[partition], gap_s)
            self._last_s[partition] = now_s

    def longest_s(self, owners: list[str | None], now_s: float) -> float:
        """Return the longest gap of the window that ends now, among partitions that have the same
        owner as at its begin."""
        return max(
            (
                max(self._longest_s[number], now_s - self._last_s[number])
                for number, owner in enumerate(owners)
                if owner is not None and owner == self._owners[number]
            ),
            default=float("inf"),
        )
