"""Watches of which only the newest is heard.

Rule: a node is read again whenever its watch fires, and each read sets another watch. Where reads
overlap, of the watches that were set under a name the newest alone leads to the next read.
"""

from collections.abc import Callable

from storage_engine.zookeeper.flow import Flows, Watch


class NewestWatches:
    """The watches of one controller epoch, by name."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._numbers: dict[str, int] = {}

    def newest(self, name: str, work: Callable[[], None]) -> Watch:
        """A watch that does `work`, unless another was made under the name since."""
        number = self._numbers.get(name, 0) + 1
        self._numbers[name] = number

        def run() -> None:
            if not self._flows.closed and self._numbers.get(name) == number:
                work()

        return run

    def forget(self, name: str) -> None:
        """Nothing under this name is heard any more."""
        self._numbers.pop(name, None)
