"""The limit of producers that the logs of one broker remember, and its shares for principals.

Clients choose producer ids, and may spread them over all partitions. The producers in all logs are
counted, led or followed, so a start, a truncation or a compaction changes nothing. Only a leader
refuses, when it appends: a follower accepts what its leader did. A principal begins no more than
stay free after it, so others find room, and a few are always allowed. Source: KIP-936.
"""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from storage_engine.core.errors import CorruptRecordError, TooManyProducersError
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import IDLE_MS, ProducerStates
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers

BROKER_PRODUCERS_MAX = 200_000
"""The most producers that the logs of a broker remember; some 40 MiB."""


FEW = 100
"""The producers that a principal may begin in IDLE_MS in any case."""

COUNTED_EACH = 1_000
"""The logs are counted anew after so many new producers: new producers in followed logs are not
reported, and to count thousands of logs for each new producer would take too long."""


class NewProducers:
    """Admits producers that a log does not know yet. Producers in a transaction are always
    admitted: the coordinator knows them."""

    def __init__(self, logs: Callable[[], Iterable[ProducerStates]], clock: Clock) -> None:
        """`logs`: the producer states of each log of this broker."""
        self._logs = logs
        self._clock = clock
        self._remembered = 0
        self._uncounted = COUNTED_EACH
        """Producers that have begun since the logs were counted."""
        self._begun: dict[Hashable, int] = {}
        """Principal -> the number of producers that it began in this span of IDLE_MS."""
        self._begun_before: dict[Hashable, int] = {}
        """The same for the span before."""
        self._span_ms = clock.monotonic_ms()

    def count(self) -> int:
        """Count the producers in the logs of this broker; done every minute at the latest."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._span_ms >= IDLE_MS:
            self._begun, self._begun_before = {}, self._begun
            self._span_ms = now_ms
        self._remembered = sum([len(each) for each in self._logs()])
        self._uncounted = 0
        return self._remembered

    def refusal(
        self, principal: Hashable, known: ProducerStates, records: memoryview
    ) -> TooManyProducersError | None:
        """The error if these batches, none of a transaction, have too many new producers."""
        free = self.free_for(principal)
        if len(records) < HEADER_BYTES * (free + 1):
            return None
        new = _new_producers(known, records)
        if new <= free:
            return None
        return TooManyProducersError(
            f"{new} new producers, and {principal} may begin {max(0, free)}: this broker remembers"
            f" {self._remembered}, wait until some have been silent for {IDLE_MS // 60_000} minutes"
        )

    def free_for(self, principal: Hashable) -> int:
        """Return how many more producers this principal may begin now."""
        if self._uncounted >= COUNTED_EACH:
            self.count()
        began = self._begun.get(principal, 0) + self._begun_before.get(principal, 0)
        return max(FEW - began, (BROKER_PRODUCERS_MAX - self._remembered - began) // 2)

    def note(self, principal: Hashable, count: int) -> None:
        """Note that the principal has begun `count` producers."""
        self._begun[principal] = self._begun.get(principal, 0) + count
        self._remembered += count
        self._uncounted += count


def _new_producers(known: ProducerStates, records: memoryview) -> int:
    """Count producers that the log does not know; a damaged batch is left to the append."""
    found: set[int] = set()
    with suppress(CorruptRecordError):
        for _, header in iter_headers(records):
            if header.producer_id >= 0:
                found.add(header.producer_id)
    return sum(known.get(producer_id) is None for producer_id in found)
