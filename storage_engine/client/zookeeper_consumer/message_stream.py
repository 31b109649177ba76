"""A stream of messages: what one thread of a consumer reads, of one partition or many.

The reader's thread fetches what it reads itself, and nothing ahead but what is buffered; the ledger
says what it may read, and has the last word before anything is handed out. Each partition goes to
one stream only. Source: R-CLI3.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_positions import Positions
from storage_engine.client.consumer.consumer_record import ConsumerRecord
from storage_engine.client.consumer.record_buffer import Piece
from storage_engine.client.zookeeper_consumer.ledger import Claim, StreamLedger
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, sleep_ms

POLL_MS = 1_000

_SLICE_MS = 100
"""The ledger is looked at so often while messages are waited for."""


class MessageStream:
    """A stream of messages for one thread at a time; any thread may shut its connector down."""

    def __init__(self, config: ConsumerConfig, ledger: StreamLedger) -> None:
        """`config` names no brokers: those of the ledger are taken."""
        self._config = config
        self._ledger = ledger
        self._positions: Positions | None = None
        self._addresses: frozenset[str] = frozenset()
        self._reading: dict[TopicPartition, Claim] = {}
        """The claim that `_positions` was assigned from."""
        self._piece: Piece | None = None
        """The piece that iteration is at; it belongs to the claim `_reading`."""

    # --- messages ---

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Messages until the connector is shut down. Each counts as consumed when the next one is
        asked for, or `commit_offsets` is called in the same thread."""
        return self

    def __next__(self) -> ConsumerRecord:
        while True:
            piece = self._piece
            if piece is None or piece.index == piece.count:
                self._piece = piece = self._next_piece()
            record = piece.rows[piece.index]
            claim = self._reading[piece.tp]
            if self._ledger.hand_out(claim, record.offset + 1, consumes=True):
                piece.index += 1
                return record
            self._reread(piece.tp)

    def poll(
        self, timeout_ms: int = POLL_MS, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next messages, at most `max_records` (None: `max.poll.records`); none when none has
        come in time, or the connector is shut down. They count as consumed at the next call, or at
        `commit_offsets` in the same thread."""
        limit = self._config.most_records(max_records)
        self._piece = None
        deadline = Deadline.after(timeout_ms)
        while self._fill(deadline):
            assert self._positions is not None, "it is filled from there"
            if rows := self._handed_out(self._positions.take_rows(limit)):
                return rows
        return []

    def _handed_out(self, rows: list[ConsumerRecord]) -> list[ConsumerRecord]:
        ends = {TopicPartition(row.topic, row.partition): row.offset + 1 for row in rows}
        refused = {
            tp for tp, end in ends.items() if not self._ledger.hand_out(self._reading[tp], end)
        }
        if not refused:
            return rows
        for tp in refused:
            self._reread(tp)
        return [row for row in rows if (row.topic, row.partition) not in refused]

    def _next_piece(self) -> Piece:
        while True:
            if self._fill(Deadline.after(_SLICE_MS)):
                assert self._positions is not None, "it is filled from there"
                piece = self._positions.next_piece()
                assert piece is not None, "it is filled"
                return piece
            if self._ledger.closed:
                raise StopIteration

    # --- what is read ---

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of this stream at the last call."""
        return frozenset(self._reading)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Returns no messages of these partitions until `resume`, or until they are assigned again.
        They stay the stream's."""
        self._set_paused(partitions, paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        self._piece = None
        for tp in partitions:
            if self._positions is None or tp not in self._reading:
                raise ConfigError(f"{TopicPartition(*tp)} is not read by this stream")
            self._positions.pause(TopicPartition(*tp), paused=paused)

    def _fill(self, deadline: Deadline) -> bool:
        """Apply what the ledger says, and fetch until something is buffered; False when the time is
        over, or the stream is closed."""
        while True:
            claims = self._ledger.begin()
            if claims is None:
                self.close()
                return False
            positions = self._apply(claims)
            wait_ms = min(deadline.left_ms, _SLICE_MS)
            if positions is None or not self._ledger.may_hand_out:
                if deadline.passed:
                    return False
                sleep_ms(wait_ms)
                continue
            positions.find()
            self._ledger.found(positions.known(), self._reading)
            if positions.next_piece() is not None:
                return True
            if deadline.passed:
                return False
            if not positions.fetch(wait_ms):
                sleep_ms(wait_ms)

    def _apply(self, claims: dict[TopicPartition, Claim]) -> Positions | None:
        """Read the claimed partitions, each from its position."""
        addresses = frozenset(filter(None, self._ledger.addresses.split(",")))
        if self._positions is not None and not addresses & self._addresses:
            # Brokers may all have moved while nothing was read.
            self.close()
        if self._positions is None:
            if not claims or not addresses:
                return None
            config = replace(self._config, bootstrap_servers=",".join(sorted(addresses)))
            self._positions = Positions(config, self._begins)
            self._addresses = addresses
        kept = [tp for tp, claim in self._reading.items() if claims.get(tp) is claim]
        if len(kept) < len(self._reading):
            self._positions.assign(kept)
        if len(kept) < len(claims):
            self._positions.assign(claims)
        self._reading = claims
        return self._positions

    def _begins(
        self, _cluster: Cluster, _partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        known = ((tp, claim.consumed_to) for tp, claim in self._reading.items())
        return {tp: offset for tp, offset in known if offset is not None}

    def _reread(self, tp: TopicPartition) -> None:
        """A commit for buffered messages was refused. If the partition still belongs to this
        stream, it is read again from the consumed offset."""
        self._piece = None
        del self._reading[tp]
        assert self._positions is not None, "it was read"
        self._positions.assign(self._reading)

    def close(self) -> None:
        """Releases the connections; nothing is read any more."""
        if self._positions is not None:
            self._positions.close()
        self._positions, self._piece, self._reading = None, None, {}
