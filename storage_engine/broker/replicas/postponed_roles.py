"""Leaderships that this broker could not take up for want of descriptors, memory or room. The
newest order for a partition counts; it is tried again until it goes well, or another one comes.

The controller gets no error: it would take the replica for one on a failed disk, until a restart.
"""

import logging
from collections.abc import Callable

from storage_engine.core.errors import LogBusyError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint, Scheduler
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition

RETRY_MS = 1000
"""Descriptors come back when connections end, which takes seconds rather than milliseconds."""

log = logging.getLogger(__name__)

_Order = tuple[LeaderAndIsrPartition, dict[int, Endpoint]]


class PostponedRoles:
    """Postponed orders, by partition: at most as many as the controller has sent to this broker."""

    def __init__(self, scheduler: Scheduler, apply: Callable[[list[_Order]], None]) -> None:
        """`apply` carries orders out as if they came now."""
        self._scheduler = scheduler
        self._apply = apply
        self._orders: dict[TopicPartition, _Order] = {}
        self._is_waiting = False

    def add(self, tp: TopicPartition, order: _Order, failure: LogBusyError) -> None:
        """Schedules another attempt."""
        log.warning("leadership postponed partition=%s: %s", tp, failure)
        self._orders[tp] = order
        if not self._is_waiting:
            self._is_waiting = True
            self._scheduler.call_later(RETRY_MS, self._try_again)

    def forget(self, tp: TopicPartition) -> None:
        """A newer request for the partition has arrived."""
        self._orders.pop(tp, None)

    def forget_all(self) -> None:
        """An order has come that names all that is to be here."""
        self._orders.clear()

    def _try_again(self) -> None:
        self._is_waiting = False
        orders, self._orders = self._orders, {}
        if orders:
            self._apply(list(orders.values()))
