"""Work that is done again and again, at an interval that may change."""

from collections.abc import Callable

from storage_engine.core.ports import Scheduler, Timer


class Rhythm:
    """Calls `work` each time when the interval is over."""

    def __init__(
        self, scheduler: Scheduler, interval_ms: Callable[[], int], work: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._interval_ms = interval_ms
        self._work = work
        self._began_with_ms = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begins a whole interval."""
        self._began_with_ms = self._interval_ms()
        self._timer = self._scheduler.call_later(self._began_with_ms, self._is_due)

    def stop(self) -> None:
        """Calls no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def interval_may_have_changed(self) -> None:
        """Begins anew where it has."""
        if self._timer is not None and self._interval_ms() != self._began_with_ms:
            self._timer.cancel()
            self.start()

    def _is_due(self) -> None:
        # First, so that work that fails is not the last.
        self.start()
        self._work()
