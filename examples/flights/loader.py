"""Writes the records into the log, a day of departures at a time, in event time order.

A day begins when every record of the day before is acknowledged by all in-sync replicas. So no
airport is ever more than a day ahead of another in the log, also while the leader of one partition
is dead; the stream's watermark relies on it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from examples.flights.dataset import Records
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.records import EncodedBatch, encode_batches

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


@dataclass(frozen=True, slots=True)
class _PartitionRecords:
    partition: TopicPartition
    records: Records
    day_ends: np.ndarray[tuple[int], np.dtype[np.int64]]


class Loader(threading.Thread):
    """Loads in the background, `seconds` in all when nothing holds it up."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        topics: Mapping[str, tuple[Records, int]],
        *,
        seconds: float,
    ) -> None:
        """`connect`: a cluster for the loader's own thread. `topics`: for each topic its records
        and the number of its partitions."""
        super().__init__(name="loader", daemon=True)
        self.total = sum(len(records) for records, _ in topics.values())
        self.days: list[LoadedDay] = []
        """Grows at its end only; other threads read it."""
        self.acknowledged = 0
        self._error: HeadraceError | None = None
        self._connect = connect
        self._stopping = threading.Event()
        self._held_until = threading.Event()
        self._first_ms = min(_first(records) for records, _ in topics.values())
        last_ms = max(_last(records) for records, _ in topics.values())
        self._day_count = (last_ms - self._first_ms) // DAY_MS + 1
        self.end_ms = self._first_ms + self._day_count * DAY_MS
        """In event time: every record is of an earlier hour."""
        self._hold_at = int(HOLD_AT * self._day_count)
        self._seconds_per_day = seconds / self._day_count
        self._partitions = [
            part
            for topic, (records, count) in topics.items()
            for part in self._by_partition(topic, records, count)
        ]

    @property
    def share(self) -> float:
        """Acknowledged of all, from 0 to 1."""
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
        """Whether it is at HOLD_AT and waits."""
        return len(self.days) == self._hold_at and not self._held_until.is_set()

    @property
    def done(self) -> bool:
        return self.started and not self.is_alive()

    def check(self) -> None:
        """Raises what the loading ended with, if it failed."""
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
            self._load()
        except HeadraceError as error:
            self._error = error

    def _load(self) -> None:
        cluster = self._connect()
        writer = BatchWriter(cluster, acks=-1)
        try:
            due = time.monotonic()
            for day in range(self._day_count):
                if day == self._hold_at:
                    self._held_until.wait()
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    break
                due = max(due, time.monotonic() - 1.0) + self._seconds_per_day
                self._load_day(writer, day)
        finally:
            writer.close()
            cluster.close()

    def _load_day(self, writer: BatchWriter, day: int) -> None:
        sent_at = time.monotonic()
        count = 0
        for part in self._partitions:
            for batch in _encode(part, day):
                writer.append(part.partition, batch)
                count += batch.record_count
        writer.flush()
        self.acknowledged += count
        self.days.append(
            LoadedDay(records=count, sent_at=sent_at, acknowledged_at=time.monotonic())
        )

    def _by_partition(
        self, topic: str, records: Records, count: int
    ) -> Iterator[_PartitionRecords]:
        partitions = np.asarray(partitions_for_keys(records.keys, count))
        for partition in range(count):
            rows = np.flatnonzero(partitions == partition)
            if not len(rows):
                continue
            chosen = _take(records, rows)
            days = (chosen.timestamps_ms.to_numpy() - self._first_ms) // DAY_MS
            ends = np.searchsorted(days, np.arange(self._day_count), side="right")
            yield _PartitionRecords(TopicPartition(topic, partition), chosen, ends)


def _encode(part: _PartitionRecords, day: int) -> Sequence[EncodedBatch]:
    start = int(part.day_ends[day - 1]) if day else 0
    length = int(part.day_ends[day]) - start
    if not length:
        return []
    return encode_batches(
        part.records.values.slice(start, length),
        part.records.keys.slice(start, length),
        timestamps_ms=part.records.timestamps_ms.slice(start, length),
        compression="lz4",
    )


def _take(records: Records, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Records:
    chosen = pa.array(rows)
    return Records(
        keys=records.keys.take(chosen),
        values=records.values.take(chosen),
        timestamps_ms=records.timestamps_ms.take(chosen),
    )


def _first(records: Records) -> int:
    return int(records.timestamps_ms[0].as_py())


def _last(records: Records) -> int:
    return int(records.timestamps_ms[-1].as_py())
