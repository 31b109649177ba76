"""The queue of the controller's orders to this broker.

Orders are carried out in the order in which they came: an order waits until the settings of its
topics are known, and later orders wait too. An order that fails is answered with an error and
delays no other. A long order, which may open a thousand logs, lets the event loop do other work in
between: the session with ZooKeeper depends on that, too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from storage_engine.broker import unexpected
from storage_engine.broker.settings.topic_configs import TopicConfigs
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Scheduler

STEPS_PER_TURN = 8
"""Steps of an order, mostly a partition each: 0.1 ms (a change of role) to some ms (a new log on a
busy disk)."""

Steps = Callable[[], Iterator[None]]
"""An order, begun by the call; it may be interrupted where it yields."""

Refuse = Callable[[ErrorCode], None]


class _Queued(NamedTuple):
    topics: set[str]
    order: Steps
    refuse: Refuse


class Orders:
    """Carries out the controller's requests one at a time."""

    def __init__(self, configs: TopicConfigs, scheduler: Scheduler) -> None:
        self._configs = configs
        self._scheduler = scheduler
        self._queue: deque[_Queued] = deque()
        self._busy = False

    def submit(self, topics: set[str], order: Steps, refuse: Refuse) -> None:
        """Carry out `order` once all earlier ones are and the settings of `topics` are known.
        `refuse` answers for it when it can't be."""
        self._queue.append(_Queued(topics, order, refuse))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        queued = self._queue.popleft()
        self._busy = True
        # In a turn of its own: a long queue of orders must not become a deep stack.
        self._configs.ensure(
            queued.topics,
            lambda: self._scheduler.call_soon(
                lambda: self._carry_out(queued.order(), queued.refuse)
            ),
        )

    def _carry_out(self, steps: Iterator[None], refuse: Refuse) -> None:
        goes_on = False
        try:
            goes_on = _advance(steps)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next order has its turn
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            unexpected.report("order of the controller", error)
        finally:
            if goes_on:
                self._scheduler.call_soon(lambda: self._carry_out(steps, refuse))
            else:
                self._busy = False
                if self._queue:
                    self._next()


def _advance(steps: Iterator[None]) -> bool:
    """Does the steps of one turn; returns False when there are no more."""
    return any(number == STEPS_PER_TURN for number, _ in enumerate(steps, start=1))
