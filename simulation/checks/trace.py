"""The events of a run, line by line, for people."""

from collections import deque

from simulation.world.clock import SimulatedLoop

KEPT_LINES = 2000


class Trace:
    """Keeps the newest lines; older ones are dropped."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._lines: deque[tuple[int, str]] = deque(maxlen=KEPT_LINES)

    def note(self, text: str) -> None:
        self._lines.append((self._loop.now_ms, text))

    def lines(self) -> list[str]:
        return [f"{at_ms / 1000:9.3f} s  {text}" for at_ms, text in self._lines]
