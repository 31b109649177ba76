"""Chooses the fetches of one offset range that are in flight at the same time. Pure.

A fetch that is sent before the answer to the one in front of it begins at a guessed offset: as far
behind that one as recent fetches have reached.

A wrong guess costs bytes or a round trip, never a record. When a guess was too low, some bytes are
fetched twice; when it was too high, the gap is fetched by itself.
"""

from collections import deque

MOST_IN_FLIGHT = 16
"""Fetches, apart from the one that the caller works on."""

HELD_BYTES = 32 << 20
"""The most bytes that the fetches in flight may return together; a single fetch may be larger."""

LEAST_FETCH_BYTES = 64 << 10

_REMEMBERED = 4
"""The number of answers on which a guess is based."""

_LEAST_WORK_S = 0.000_1


class FetchWindow:
    """The fetches of the range that ends before `end_offset` (None: never), each of at most
    `max_bytes`."""

    __slots__ = (
        "_bytes_per_offset",
        "_max_bytes",
        "_most",
        "_round_trip_s",
        "_slack",
        "_spans",
        "_works_s",
        "end_offset",
    )

    def __init__(
        self,
        end_offset: int | None,
        *,
        max_bytes: int,
        most_in_flight: int = MOST_IN_FLIGHT,
        offset_bytes: int = 0,
    ) -> None:
        """`offset_bytes`: what an offset is guessed to need before there is an answer; 0: no
        guess."""
        self.end_offset = end_offset
        self._max_bytes = max_bytes
        self._most = 1 if end_offset is None else min(most_in_flight, HELD_BYTES // max_bytes)
        self._spans: deque[int] = deque(maxlen=_REMEMBERED)
        self._works_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._bytes_per_offset: float = offset_bytes
        self._slack = 0
        self._round_trip_s: float | None = None

    # Learned from answers.

    def reached(self, start_offset: int, next_offset: int, *, size: int, last_batch: int) -> None:
        """The fetch from `start_offset` brought `size` bytes, the last batch of them `last_batch`,
        and goes on at `next_offset`."""
        span = next_offset - start_offset
        if span <= 0:
            return
        self._bytes_per_offset = size / span
        self._slack = last_batch
        if self.is_full(size):
            self._spans.append(span)

    def is_full(self, size: int) -> bool:
        """A short answer shows the end of a segment, or of the log, and not how far a fetch
        reaches, or how long one is worked on."""
        return 2 * size >= self._max_bytes

    def answered(self, after_s: float) -> None:
        """The first byte of an answer was there so long after its fetch was sent, or before that:
        who finds it waiting does not know. So the least counts."""
        known = self._round_trip_s
        self._round_trip_s = after_s if known is None else min(known, after_s)

    def worked(self, seconds: float) -> None:
        """Receiving an answer and working on it took so long."""
        self._works_s.append(max(seconds, _LEAST_WORK_S))

    # What follows from it.

    @property
    def wanted_in_flight(self) -> int:
        """The number of fetches in flight with which the oldest is answered by the time the caller
        has processed all before it. On a link without a delay that is one."""
        if self._round_trip_s is None or not self._works_s:
            return 1
        work_s = sum(self._works_s) / len(self._works_s)
        return max(1, min(self._most, 1 + int(self._round_trip_s / work_s)))

    def next_start(self, position: int, last_start: int) -> int | None:
        """The offset at which one more fetch begins, when all below `position` is read and the last
        fetch in flight begins at `last_start`. None when the range is covered, or when there is
        nothing to guess by."""
        if not self._spans:
            return None
        start = max(position, last_start + self._step())
        return start if self.end_offset is None or start < self.end_offset else None

    def _step(self) -> int:
        """Equal batches: exactly what a fetch brings. Where that varies a little, below the least,
        so that there is no hole; where much, a hole now and then costs less than reading all of it
        twice."""
        spans = sorted(self._spans)
        middle = spans[len(spans) // 2]
        careful = 2 * spans[0] - spans[-1]
        return careful if 4 * careful >= 3 * middle else middle

    def limit(
        self, start_offset: int, stop_offset: int | None = None, most_bytes: int | None = None
    ) -> int:
        """Bytes to ask for from `start_offset`, `most_bytes` at most: not much more than lies
        before `stop_offset` (None: the range's end), because the rest would be thrown away."""
        most_bytes = self._max_bytes if most_bytes is None else most_bytes
        stop = self.end_offset if stop_offset is None else stop_offset
        if stop is None or not self._bytes_per_offset:
            return most_bytes
        expected = int((stop - start_offset) * self._bytes_per_offset * 17 / 16) + self._slack
        return min(most_bytes, max(expected, LEAST_FETCH_BYTES))
