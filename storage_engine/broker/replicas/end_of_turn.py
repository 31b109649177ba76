"""Work that is done once at the end of a turn of the event loop, however many requests of that turn
asked for it."""

from collections.abc import Callable

from storage_engine.broker import unexpected
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler


class EndOfTurn:
    """The partitions of one broker that have something to do at the end of the present turn."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._due: list[tuple[TopicPartition, Callable[[], None]]] = []

    def call(self, tp: TopicPartition, work: Callable[[], None]) -> None:
        """Do this work at the end of the turn; what fails is reported as that partition's, and does
        not keep others from being served."""
        if not self._due:
            self._scheduler.call_soon(self._run)
        self._due.append((tp, work))

    def _run(self) -> None:
        due, self._due = self._due, []
        for tp, work in due:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are served
                unexpected.report(f"appends to {tp}", error)
