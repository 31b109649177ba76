"""The queue of the controller's orders to this broker.

Rule: first come, first carried out: an order waits until the settings of its topics are known, and
those behind it wait too. One that fails holds up nobody, and a long one, which may open a thousand
logs, lets the event loop serve others in between: its session with ZooKeeper, too, hangs on that.
"""

from collections import deque
from collections.abc import Callable, Iterator

from storage_engine.broker.topic_configs import TopicConfigs
from storage_engine.core.ports import Scheduler

STEPS_PER_TURN = 8
"""Of an order, mostly a partition each: 0.1 ms (a change of role) to some ms (a new log on a busy
disk)."""

Steps = Callable[[], Iterator[None]]
"""An order, begun by the call; it may be interrupted where it yields."""


class Orders:
    """One order at a time."""

    def __init__(self, configs: TopicConfigs, scheduler: Scheduler) -> None:
        self._configs = configs
        self._scheduler = scheduler
        self._queue: deque[tuple[set[str], Steps]] = deque()
        self._busy = False

    def submit(self, topics: set[str], order: Steps) -> None:
        """Carry out `order` once all earlier ones are and the settings of `topics` are known."""
        self._queue.append((topics, order))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        topics, order = self._queue.popleft()
        self._busy = True
        # In a turn of its own: a long queue of orders must not become a deep stack.
        self._configs.ensure(
            topics, lambda: self._scheduler.call_soon(lambda: self._carry_out(order()))
        )

    def _carry_out(self, steps: Iterator[None]) -> None:
        goes_on = False
        try:
            goes_on = _advance(steps)
        finally:
            if goes_on:
                self._scheduler.call_soon(lambda: self._carry_out(steps))
            else:
                self._busy = False
                if self._queue:
                    self._next()


def _advance(steps: Iterator[None]) -> bool:
    """So many steps; False when there are no more."""
    return any(number == STEPS_PER_TURN for number, _ in enumerate(steps, start=1))
