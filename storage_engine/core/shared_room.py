"""Room that many share, such as memory for what waits: nobody can fill it for the others.

At each level a share gets no more than is left free after it. One alone gets half, two a third
each, and whoever comes new always finds some. Source: dynamic thresholds (Choudhury and Hahne,
1998).
"""

from storage_engine.core.fair_queue import Share


class SharedRoom:
    """So many bytes of room."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._used_by: dict[Share, int] = {}
        """By a share, or the coarser levels of one."""

    def take(self, share: Share, size: int) -> bool:
        """Take so much, if it is there for this share. Anything finds room where nothing is."""
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
        """What was taken is free again."""
        self.used -= size
        for level in range(1, len(share) + 1):
            # One that has nothing is not kept, even if it has taken nothing.
            left = self._used_by.get(share[:level], 0) - size
            if left:
                self._used_by[share[:level]] = left
            else:
                self._used_by.pop(share[:level], None)
