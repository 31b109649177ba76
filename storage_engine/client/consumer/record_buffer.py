"""The records that a consumer has fetched and not returned yet, and its positions.

A partition's position is that of the next record to return: behind the returned records, and behind
skipped ones (compacted, aborted, markers of transactions) once all records before them were
returned. Partitions take turns, in the order in which they were fetched. Source: R-CLI2.
"""

from collections import deque
from collections.abc import Container, Iterator, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from storage_engine.client.consumer.consumer_record import ConsumerRecord, rows_of
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from storage_engine.client.fetching.typed_reading import TypedReading
    from storage_engine.protocol.records.record_decoder import DecodedRecords
    from storage_engine.protocol.typed.typed_decoder import TypedRows


@dataclass(frozen=True, slots=True)
class PolledTable:
    """A table, and the offset of the first of its rows in each partition that has some."""

    table: "pa.Table"
    first_offsets: dict[TopicPartition, int]

    def __len__(self) -> int:
        return int(self.table.num_rows)


class TakenBatch(NamedTuple):
    """Rows of one partition that are handed out as columns."""

    tp: TopicPartition
    first_offset: int
    rows: "pa.RecordBatch"


class Piece:
    """The batches of one fetch of a partition, decoded in groups of rows, one group at a time.
    Invariant: `index` <= `count`. The present group has `count` rows, of which the first `index`
    were handed out."""

    __slots__ = (
        "_error",
        "_groups",
        "_reading",
        "_rows",
        "count",
        "decoded",
        "index",
        "next_offset",
        "tp",
    )

    def __init__(self, fetched: FetchedBatches, reading: "TypedReading | None" = None) -> None:
        """`reading`: how a topic with a schema is read as columns; None: as records."""
        self.tp = fetched.tp
        self.next_offset = fetched.next_offset
        self._reading = reading
        self._groups: Iterator[DecodedRecords] | Iterator[TypedRows]
        if reading is not None:
            self._groups = reading.rows(fetched)
        else:
            # Imported with the first record: it brings Arrow.
            from storage_engine.protocol.records.record_decoder import iter_decoded

            self._groups = iter_decoded(
                fetched.committed(), start_offset=fetched.start_offset, include_headers=True
            )
        self.decoded: DecodedRecords | TypedRows | None = None
        self._rows: list[ConsumerRecord] | None = None
        self._error: HeadraceError | None = None
        self.index = self.count = 0

    def load(self) -> bool:
        """Makes a row available, from the next group of rows when this one is used up; returns
        False when nothing is left. The error of a group that can't be decoded is raised each
        time."""
        if self.index < self.count:
            return True
        if self._error is not None:
            raise self._error
        try:
            # Groups without rows, as a filter may leave them, are skipped.
            decoded = next((each for each in self._groups if len(each.offsets)), None)
        except HeadraceError as error:
            # The generator has ended with it: without this, the rest would seem to be read.
            self._error = error
            raise
        self.decoded, self._rows = decoded, None
        self.index, self.count = 0, 0 if decoded is None else len(decoded.offsets)
        return decoded is not None

    @property
    def rows(self) -> list[ConsumerRecord]:
        """The rows as records of the current group; made when they are first needed."""
        if self._rows is None:
            assert self._reading is None, "columns were asked for"
            self._rows = rows_of(self.tp, cast("DecodedRecords", self.decoded))
        return self._rows

    def take_batch(self) -> TakenBatch:
        """The rows of the current group that are left, as columns."""
        assert self.decoded is not None, "a piece is loaded before its rows are read"
        # Imported now: it brings Arrow.
        from storage_engine.client.fetching.record_tables import batch_of

        first, self.index = self.index, self.count
        if self._reading is not None:
            batch = self._reading.batch_of(self.tp, cast("TypedRows", self.decoded))
        else:
            batch = batch_of(self.tp, cast("DecodedRecords", self.decoded))
        return TakenBatch(self.tp, self.decoded.offsets[first].as_py(), batch.slice(first))

    @property
    def handed_out_to(self) -> int:
        """The offset after the last row handed out of the present group; -1 where there is none."""
        if not self.index or self.decoded is None:
            return -1
        return int(self.decoded.offsets[self.index - 1].as_py()) + 1


class RecordBuffer:
    """The fetched pieces of all partitions, and the position of each partition."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._positions: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The present positions of all partitions."""
        found = dict(self._positions)
        for piece in reversed(self._pieces):
            # A partition's first piece comes last here: only it has been begun.
            if (offset := piece.handed_out_to) >= 0:
                found[piece.tp] = offset
        return found

    def begin(self, tp: TopicPartition, offset: int) -> None:
        """Move a partition to an offset; its buffered records are dropped."""
        self.drop(tp)
        self._positions[tp] = offset

    def drop(self, tp: TopicPartition) -> None:
        self._positions.pop(tp, None)
        self._pieces = deque(piece for piece in self._pieces if piece.tp != tp)

    def go_on_at(self, tp: TopicPartition, offset: int) -> None:
        """Set where the next fetch begins: the position moves there behind buffered records."""
        for piece in reversed(self._pieces):
            if piece.tp == tp:
                piece.next_offset = offset
                return
        self._positions[tp] = offset

    def add(self, fetched: FetchedBatches, reading: "TypedReading | None" = None) -> None:
        """`reading`: see Piece."""
        self._pieces.append(Piece(fetched, reading))

    def next_piece(self, paused: Container[TopicPartition]) -> Piece | None:
        """The next piece with rows to return, of a partition that is not paused; None when there is
        none."""
        for piece in list(self._pieces):
            if piece.tp in paused:
                continue
            done_to = piece.handed_out_to
            if piece.load():
                if piece.index == 0 and done_to >= 0:
                    self._positions[piece.tp] = done_to
                return piece
            self._positions[piece.tp] = piece.next_offset
            self._pieces.remove(piece)
        return None

    def take_rows(self, limit: int, paused: Container[TopicPartition]) -> list[ConsumerRecord]:
        """Takes at most `limit` rows; none when nothing is buffered."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and (piece := self._following(paused, taken)) is not None:
            end = min(piece.count, piece.index + limit - len(taken))
            taken += piece.rows[piece.index : end]
            piece.index = end
        # Positions move over records that are skipped behind the last one.
        self._following(paused, taken)
        return taken

    def take_batches(self, paused: Container[TopicPartition]) -> list[TakenBatch]:
        """Takes all buffered rows; none when nothing is buffered."""
        taken: list[TakenBatch] = []
        while (piece := self._following(paused, taken)) is not None:
            taken.append(piece.take_batch())
        return taken

    def _following(self, paused: Container[TopicPartition], taken: Sized) -> Piece | None:
        """Return the next piece; None where it can't be decoded but rows were taken before, which
        are returned first: the error comes again."""
        try:
            return self.next_piece(paused)
        except HeadraceError:
            if not len(taken):
                raise
            return None
