"""The queue of the controller's orders to this broker.

Rule: first come, first carried out: an order waits until the settings of its topics are known, and
those behind it wait too.
"""

from collections import deque
from collections.abc import Callable

from storage_engine.broker.topic_configs import TopicConfigs


class Orders:
    """One order at a time."""

    def __init__(self, configs: TopicConfigs) -> None:
        self._configs = configs
        self._queue: deque[tuple[set[str], Callable[[], None]]] = deque()
        self._busy = False

    def submit(self, topics: set[str], apply: Callable[[], None]) -> None:
        """Carry out `apply` once all earlier orders are and the settings of `topics` are known."""
        self._queue.append((topics, apply))
        self._next()

    def _next(self) -> None:
        while self._queue and not self._busy:
            self._busy = True
            topics, apply = self._queue.popleft()
            self._configs.ensure(topics, lambda apply=apply: self._carry_out(apply))  # type: ignore[misc]

    def _carry_out(self, apply: Callable[[], None]) -> None:
        try:
            apply()
        finally:
            self._busy = False
        self._next()
