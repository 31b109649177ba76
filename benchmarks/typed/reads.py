"""Reads of whole topics with the client for Python, and their costs.

Rule: a read has ended when its position is at the end of every partition, also if a filter matches
few rows. It counts the rows that it returns, so that none is missed unnoticed.
"""

import time
from collections.abc import Callable, Sequence

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.support.brokers import Brokers
from benchmarks.typed.rows import Measured
from storage_engine.client import Consumer, TopicPartition
from storage_engine.tools.errors import CommandError

_POLL_MS = 100
_LIMIT_S = 600


class TableReader:
    """Reads topics of `rows` rows with `poll_table`."""

    def __init__(self, brokers: Brokers, partitions: int, rows: int) -> None:
        self._brokers = brokers
        self._partitions = partitions
        self._rows = rows

    def read(
        self,
        topic: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        given: int | None = None,
        count: Callable[[], int] = int,
    ) -> Measured:
        """Read all of a topic; `columns` and `where` are for typed ones. `given`: the number of
        rows to expect, None: all. `count`: returns the bytes that were sent until now."""
        partitions = [TopicPartition(topic, number) for number in range(self._partitions)]
        settings = {"bootstrap.servers": self._brokers.bootstrap_servers}
        with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            sent, brokers, own = count(), seconds_of(self._brokers.pids), time.process_time()
            started = time.perf_counter()
            found = 0
            while any(consumer.position(each) < ends[each] for each in partitions):
                found += consumer.poll_table(_POLL_MS, columns=columns, where=where).num_rows
                if time.perf_counter() - started > _LIMIT_S:
                    raise CommandError(f"topic '{topic}' is not read after {_LIMIT_S} s")
            time_s = time.perf_counter() - started
        expected = self._rows if given is None else given
        if found != expected:
            raise CommandError(f"topic '{topic}' gave {found} rows where {expected} were expected")
        return Measured(
            rows=self._rows,
            time_s=time_s,
            brokers_s=seconds_of(self._brokers.pids) - brokers,
            reader_s=time.process_time() - own,
            sent=count() - sent,
        )
