"""How many producers the logs of one broker remember, and who may begin another one.

Clients choose producer ids, and may spread them over all partitions. What the logs hold is counted,
led or followed, so a start, a truncation or a compaction changes nothing. Only a leader refuses,
when it appends: a follower takes what its leader took. Nobody gets more than is left free after it,
so whoever comes new finds room, and a few anybody may begin. Source: KIP-936.
"""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from storage_engine.core.errors import CorruptRecordError, TooManyProducersError
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import IDLE_MS, ProducerStates
from storage_engine.protocol.records.record_batch import HEADER_BYTES, iter_headers

BROKER_PRODUCERS_MAX = 200_000
"""Producers that the logs of a broker share; some 40 MiB."""


FEW = 100
"""So many a principal may begin in IDLE_MS, however many there are."""

COUNTED_EACH = 1_000
"""The logs are counted anew when so many producers have begun: those of followed logs are not told,
and to look at thousands of logs for each new producer would be the work."""


class NewProducers:
    """Admits producers that a log does not know yet. Those in a transaction are always taken: the
    coordinator knows them."""

    def __init__(self, logs: Callable[[], Iterable[ProducerStates]], clock: Clock) -> None:
        """`logs`: the producers that each log of this broker remembers."""
        self._logs = logs
        self._clock = clock
        self._remembered = 0
        self._uncounted = COUNTED_EACH
        """Producers that have begun since the logs were counted."""
        self._begun: dict[Hashable, int] = {}
        """By principal the producers that it began in this span of IDLE_MS."""
        self._begun_before: dict[Hashable, int] = {}
        """In the span before."""
        self._span_ms = clock.monotonic_ms()

    def count(self) -> int:
        """Count what the logs of this broker remember; done every minute at the latest."""
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
        """Why these batches, none of a transaction, may not be appended."""
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
        """The principal has begun so many."""
        self._begun[principal] = self._begun.get(principal, 0) + count
        self._remembered += count
        self._uncounted += count


def _new_producers(known: ProducerStates, records: memoryview) -> int:
    """Count producers that the log does not know; the append says what is wrong with a batch."""
    found: set[int] = set()
    with suppress(CorruptRecordError):
        for _, header in iter_headers(records):
            if header.producer_id >= 0:
                found.add(header.producer_id)
    return sum(known.get(producer_id) is None for producer_id in found)
