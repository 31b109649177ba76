"""The queue of the controller's orders to this broker.

Rule: first come, first carried out: an order waits until the settings of its topics are known, and
those behind it wait too. One that fails holds up nobody.
"""

from collections import deque
from collections.abc import Callable

from storage_engine.broker.topic_configs import TopicConfigs
from storage_engine.core.ports import Scheduler


class Orders:
    """One order at a time."""

    def __init__(self, configs: TopicConfigs, scheduler: Scheduler) -> None:
        self._configs = configs
        self._scheduler = scheduler
        self._queue: deque[tuple[set[str], Callable[[], None]]] = deque()
        self._busy = False

    def submit(self, topics: set[str], apply: Callable[[], None]) -> None:
        """Carry out `apply` once all earlier orders are and the settings of `topics` are known."""
        self._queue.append((topics, apply))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        topics, apply = self._queue.popleft()
        self._busy = True
        # In a turn of its own: a long queue of orders must not become a deep stack.
        self._configs.ensure(
            topics, lambda: self._scheduler.call_soon(lambda: self._carry_out(apply))
        )

    def _carry_out(self, apply: Callable[[], None]) -> None:
        try:
            apply()
        finally:
            self._busy = False
            if self._queue:
                self._next()
