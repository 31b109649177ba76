"""The processor time of many processes at any moment of the past, from samples of a thread."""

import bisect
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Self

from benchmarks.beside_kafka.processor_time import seconds_of
from storage_engine.client.closing import Closing

INTERVAL_S = 0.1


class ProcessorTimes(Closing):
    """Samples the processes that `processes` names, by kind, while it is open.

    A process that has ended keeps the time of its last sample, so that none is lost but what it
    took in its last tenth of a second."""

    def __init__(self, processes: Callable[[], Mapping[str, Collection[int]]]) -> None:
        """`processes`: kind -> process ids; asked for each sample."""
        self._processes = processes
        self._last_s: dict[tuple[str, int], float] = {}
        self._moments_s: list[float] = []
        self._sums: list[dict[str, float]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-times", daemon=True)

    def __enter__(self) -> Self:
        self.sample()
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def sample(self) -> None:
        """Take a sample now."""
        with self._lock:
            for kind, pids in self._processes().items():
                for pid in pids:
                    with contextlib.suppress(OSError):
                        self._last_s[kind, pid] = seconds_of([pid])
            sums: dict[str, float] = {}
            for (kind, _), spent_s in self._last_s.items():
                sums[kind] = sums.get(kind, 0.0) + spent_s
            self._moments_s.append(time.time())
            self._sums.append(sums)

    def between(self, kind: str, began_s: float, ended_s: float) -> float:
        """Return the seconds that processes of a kind took between two moments, in seconds since
        1970, to a tenth of a second."""
        return self._until(kind, ended_s) - self._until(kind, began_s)

    def _until(self, kind: str, moment_s: float) -> float:
        with self._lock:
            place = max(0, bisect.bisect_right(self._moments_s, moment_s) - 1)
            return self._sums[place].get(kind, 0.0)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self.sample()
