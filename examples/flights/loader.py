"""Writes the rows into the log, a day of departures at a time, in event time order.

A day begins when every row of the day before is acknowledged by all in-sync replicas. So no airport
is ever more than a day ahead of another in the log, also while the leader of one partition is dead;
the stream's watermark relies on it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage_engine.client import HeadraceError, Producer

DAY_MS = 24 * 3600 * 1000

HOLD_AT = 0.35
"""Share of the days that is loaded without waiting for the stream, so that whatever happens to the
brokers later happens to both."""

_RATE_DAYS = 20
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDay:
    """One day as the producing client saw it; times are of the monotonic clock, in seconds."""

    records: int
    sent_at: float
    acknowledged_at: float

    @property
    def seconds(self) -> float:
        return self.acknowledged_at - self.sent_at


class Loader(threading.Thread):
    """Loads in the background, `seconds` in all when nothing holds it up."""

    def __init__(
        self, connect: Callable[[], Producer], topics: Mapping[str, pa.Table], *, seconds: float
    ) -> None:
        """`connect`: a producer for the loader's own thread. `topics`: the rows of each, in the
        order of their `_timestamp`."""
        super().__init__(name="loader", daemon=True)
        self.total = sum(len(rows) for rows in topics.values())
        self.days: list[LoadedDay] = []
        """Grows at its end only; other threads read it."""
        self.acknowledged = 0
        self._error: HeadraceError | None = None
        self._connect = connect
        self._stopping = threading.Event()
        self._held_until = threading.Event()
        self._topics = topics
        times = {topic: _milliseconds(rows["_timestamp"]) for topic, rows in topics.items()}
        first_ms = min(int(each[0]) for each in times.values())
        last_ms = max(int(each[-1]) for each in times.values())
        self._day_count = (last_ms - first_ms) // DAY_MS + 1
        self.end_ms = first_ms + self._day_count * DAY_MS
        """The end of the last day in event time, ms: every record is of an earlier hour."""
        self._hold_at = int(HOLD_AT * self._day_count)
        self._seconds_per_day = seconds / self._day_count
        starts_ms = first_ms + np.arange(self._day_count + 1) * DAY_MS
        # Where each day begins, and the last ends, among the rows of a topic.
        self._bounds = {topic: np.searchsorted(each, starts_ms) for topic, each in times.items()}

    @property
    def share(self) -> float:
        """The acknowledged share of all records, from 0 to 1."""
        return self.acknowledged / self.total

    def rate(self) -> float:
        """Records acknowledged a second, over the newest days."""
        newest = self.days[-_RATE_DAYS:]
        if not newest:
            return 0.0
        seconds = newest[-1].acknowledged_at - newest[0].sent_at
        return sum(day.records for day in newest) / seconds

    @property
    def started(self) -> bool:
        return self.ident is not None

    @property
    def holds(self) -> bool:
        """Whether the loading is at HOLD_AT and waits for `go_on`."""
        return len(self.days) == self._hold_at and not self._held_until.is_set()

    @property
    def done(self) -> bool:
        return self.started and not self.is_alive()

    def check(self) -> None:
        """Raises the error that the loading ended with, if it failed."""
        if self._error is not None:
            raise self._error

    def go_on(self) -> None:
        """Lets the loading go beyond HOLD_AT, where it waits for this call."""
        self._held_until.set()

    def stop(self) -> None:
        """Ends the loading early; returns when it has ended, or hangs on a dead cluster."""
        self._stopping.set()
        self._held_until.set()
        if self.started:
            self.join(_STOP_SECONDS)

    def run(self) -> None:
        try:
            with self._connect() as producer:
                self._load(producer)
        except HeadraceError as error:
            self._error = error

    def _load(self, producer: Producer) -> None:
        due = time.monotonic()
        for day in range(self._day_count):
            if day == self._hold_at:
                self._held_until.wait()
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                break
            due = max(due, time.monotonic() - 1.0) + self._seconds_per_day
            self._load_day(producer, day)

    def _load_day(self, producer: Producer, day: int) -> None:
        sent_at = time.monotonic()
        count = 0
        for topic, rows in self._topics.items():
            start, end = self._bounds[topic][day : day + 2]
            if start < end:
                producer.send_table(topic, rows.slice(start, end - start))
                count += int(end - start)
        producer.flush()
        self.acknowledged += count
        self.days.append(
            LoadedDay(records=count, sent_at=sent_at, acknowledged_at=time.monotonic())
        )


def _milliseconds(times: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
