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
"""Answers that a guess goes by."""

_LEAST_WORK_S = 0.000_1


class FetchWindow:
    """The fetches of the range that ends before `end_offset`, each of at most `max_bytes`."""

    __slots__ = (
        "_bytes_per_offset",
        "_end",
        "_max_bytes",
        "_most",
        "_round_trip_s",
        "_slack",
        "_spans",
        "_works_s",
    )

    def __init__(
        self, end_offset: int, *, max_bytes: int, most_in_flight: int = MOST_IN_FLIGHT
    ) -> None:
        """`most_in_flight` 0: a fetch is sent only when it is asked for."""
        self._end = end_offset
        self._max_bytes = max_bytes
        self._most = min(most_in_flight, max(1, HELD_BYTES // max_bytes))
        self._spans: deque[int] = deque(maxlen=_REMEMBERED)
        self._works_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._bytes_per_offset = 0.0
        self._slack = 0
        self._round_trip_s: float | None = None

    # What answers tell.

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
        """A short answer tells of the end of a segment, or of the log, and not how far a fetch
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
            return min(1, self._most)
        work_s = sum(self._works_s) / len(self._works_s)
        return min(self._most, 1 + int(self._round_trip_s / work_s))

    def next_start(self, position: int, last_start: int | None) -> int | None:
        """The offset at which one more fetch begins, when all below `position` is read and the last
        fetch in flight begins at `last_start`. None when the range is covered, or when there is
        nothing to guess by."""
        start = position
        if last_start is not None:
            if not self._spans:
                return None
            start = max(position, last_start + self._step())
        return start if start < self._end else None

    def _step(self) -> int:
        """Equal batches: exactly what a fetch brings. Where that varies a little, below the least,
        so that there is no hole; where much, a hole now and then costs less than reading all of it
        twice."""
        spans = sorted(self._spans)
        middle = spans[len(spans) // 2]
        careful = 2 * spans[0] - spans[-1]
        return careful if 4 * careful >= 3 * middle else middle

    def limit(self, start_offset: int, stop_offset: int | None = None) -> int:
        """Bytes to ask for from `start_offset`: not much more than lies before `stop_offset`
        (None: the range's end), because the rest would be thrown away."""
        stop = self._end if stop_offset is None else stop_offset
        expected = int((stop - start_offset) * self._bytes_per_offset * 17 / 16) + self._slack
        return (
            min(self._max_bytes, max(expected, LEAST_FETCH_BYTES)) if expected else self._max_bytes
        )
