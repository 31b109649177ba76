"""The ledger of a stream says which messages it may return to its reader, and which count as
consumed. The group's thread and the stream's reader share it.

A message counts as consumed once the reader asks for the next one, or commits; no message is
returned from a partition that was taken away, or while the session may have expired. Every method
holds one lock, briefly. Source: R-CLI3.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_with_sleep_ms


class SessionLease(Protocol):
    """The lease of a ZooKeeper session."""

    @property
    def lease_end_monotonic_ms(self) -> int:
        """The time until which no other consumer can own the partitions of this session."""
        ...


class Claim:
    """The right of a stream to read a partition, from when the partition is given to it until it is
    taken away. A partition that is given again has a new claim."""

    __slots__ = ("consumed_to", "handed_out_to", "tp")

    def __init__(self, tp: TopicPartition, offset: int | None) -> None:
        self.tp = tp
        # The next offset after what counts as consumed; None while nobody knows where it begins.
        self.consumed_to = offset
        # The next offset after what was handed out; None when that counts as consumed.
        self.handed_out_to: int | None = None


class StreamLedger:
    """The ledger of one stream."""

    def __init__(self, session: SessionLease) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._claims: dict[TopicPartition, Claim] = {}
        self._handed_out: list[Claim] = []
        """Claims with a `handed_out_to`."""
        self._reader = 0
        """The id of the thread that has asked for messages last; 0: none has."""
        self._addresses = ""
        self._closed = False
        self._error: HeadraceError | None = None

    # --- the group's thread ---

    def set_brokers(self, addresses: str) -> None:
        with self._lock:
            self._addresses = addresses

    def give(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Give partitions to the stream, with the committed offset of each; None without one."""
        with self._lock:
            for tp, offset in offsets.items():
                self._claims[tp] = Claim(tp, offset)

    def revoke(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Takes the stream's partitions away. Returns those that it had, with the consumed offsets
        that are known."""
        with self._lock:
            claims = [self._claims.pop(tp) for tp in partitions if tp in self._claims]
            return {
                claim.tp: claim.consumed_to for claim in claims if claim.consumed_to is not None
            }

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets that count as consumed."""
        with self._lock:
            return {
                tp: claim.consumed_to
                for tp, claim in self._claims.items()
                if claim.consumed_to is not None
            }

    def close(self, error: HeadraceError | None = None) -> None:
        """Returns no more messages; the reader gets `error`."""
        with self._lock:
            self._closed = True
            self._error = self._error or error
            self._claims.clear()

    # --- the reader's thread ---

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_callers(self) -> bool:
        """Whether no other thread can be reading."""
        return self._reader in (0, threading.get_ident())

    @property
    def addresses(self) -> str:
        return self._addresses

    def begin(self) -> dict[TopicPartition, Claim] | None:
        """The reader asks for more, so the messages that it got count as consumed. Returns what it
        may read now; None when the stream is closed. Raises the error that has closed it."""
        with self._lock:
            self._reader = threading.get_ident()
            self._consume()
            if self._error is not None:
                raise self._error
            return None if self._closed else dict(self._claims)

    def settle(self) -> None:
        """The calling thread commits: the messages that it got itself count as consumed."""
        with self._lock:
            if self._reader == threading.get_ident():
                self._consume()

    def _consume(self) -> None:
        for claim in self._handed_out:
            claim.consumed_to, claim.handed_out_to = claim.handed_out_to, None
        self._handed_out.clear()

    def found(
        self, positions: Mapping[TopicPartition, int], claims: Mapping[TopicPartition, Claim]
    ) -> None:
        """Move the consumed offsets to the reader's positions while it has no message in hand:
        positions also pass offsets that the log leaves out."""
        with self._lock:
            assert not self._handed_out, "what was handed out is consumed first"
            for tp, offset in positions.items():
                claims[tp].consumed_to = offset

    @property
    def may_hand_out(self) -> bool:
        """Whether it is certain that no other consumer owns the stream's partitions."""
        return monotonic_with_sleep_ms() < self._session.lease_end_monotonic_ms

    def hand_out(self, claim: Claim, next_offset: int, *, consumes: bool = False) -> bool:
        """Return whether the reader may have the records of `claim` below `next_offset`; if so,
        they are noted as handed out. `consumes`: the messages that it got before count as
        consumed."""
        with self._lock:
            if consumes:
                self._reader = threading.get_ident()
                self._consume()
            if self._claims.get(claim.tp) is not claim or not self.may_hand_out:
                return False
            if claim.handed_out_to is None:
                self._handed_out.append(claim)
            claim.handed_out_to = next_offset
            return True
