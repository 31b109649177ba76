"""A reader of typed topics. It asks in turn for batches as they are stored, for some columns with a
filter, and for the JSON records that clients get which know no typed topics.
"""

from collections.abc import Sequence

from simulation.shared import Run
from simulation.typed.ledger import TypedLedger
from simulation.typed.rows import NAMES, SCHEMA, ReadRow, rows_of_json, rows_of_typed, typed_batches
from simulation.workload import WorkloadReader, records_of
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.typed.frames import iter_frames
from storage_engine.protocol.typed.projection import WANT_FRAMES, WANT_STORED, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan

PAUSE_MS = 300


class TypedReader(WorkloadReader):
    """Compares each row with the one that is committed at its offset."""

    fetch_version = 12

    def __init__(
        self,
        run: Run,
        ledger: TypedLedger,
        partitions: Sequence[TopicPartition],
        compacted: Sequence[TopicPartition],
    ) -> None:
        name = "typed reader"
        everything = [*partitions, *compacted]
        super().__init__(run, run.chooser(name), name, everything, pause_ms=PAUSE_MS)
        self._ledger = ledger
        self._compacted = compacted
        self._want: TypedWant | None = None
        self._wanted_name: str | None = None
        """The name that the filter asks for."""
        self.rows = 0
        """The rows that it has compared."""

    def wanted(self) -> TypedWant | None:
        name = self.choose.choice(NAMES)
        self._want = self.choose.choice((None, TypedWant(WANT_STORED), _filtered(name)))
        is_filtered = self._want is not None and self._want.mode == WANT_FRAMES
        self._wanted_name = name if is_filtered else None
        return self._want

    def take(
        self, tp: TopicPartition, leader: int, epoch: int, answer: FetchPartitionResponse
    ) -> None:
        data = records_of(answer)
        start = self.positions[tp]
        if self._want is None:
            next_offset, rows = self._of_batches(data, start)
            rows = rows_of_json(data, start)
        elif self._want.mode == WANT_STORED:
            next_offset, rows = self._of_batches(data, start)
        else:
            next_offset, rows = self._of_frames(data, start)
        self.positions[tp] = next_offset
        if self.checker.record(tp).unclean:
            return
        self._ledger.check_read(tp, rows, self.name)
        self.rows += len(rows)
        if tp not in self._compacted:
            offsets = range(start, next_offset)
            self._ledger.check_complete(tp, offsets, rows, self.name, self._wanted_name)

    @staticmethod
    def _of_batches(data: memoryview, start: int) -> tuple[int, list[ReadRow]]:
        next_offset = start
        for _, header in iter_headers(data):
            next_offset = max(next_offset, header.next_offset)
        rows = [
            row for header, batch, _ in typed_batches(data) for row in rows_of_typed(header, batch)
        ]
        return next_offset, [row for row in rows if row.offset >= start]

    def _of_frames(self, data: memoryview, start: int) -> tuple[int, list[ReadRow]]:
        assert self._want is not None
        next_offset = start
        for frame in iter_frames(data):
            next_offset = max(next_offset, frame.next_offset)
        wanted = plan(SCHEMA, ["name", "number", "text"], ("_offset",), self._want.comparisons)
        rows = []
        for part in iter_typed_decoded(
            data, wanted, start_offset=start, end_offset=None, framed=True, topic_schema=SCHEMA
        ):
            rows += [
                ReadRow(row["_offset"], row["name"], row["number"], row["text"])
                for row in part.batch.to_pylist()
            ]
        return next_offset, rows


def _filtered(name: str) -> TypedWant:
    version = SCHEMA.latest
    ids = tuple(column.column_id for column in version.columns)
    equal = Comparison(version.column("name").column_id, Operator.EQ, (name,))
    return TypedWant(WANT_FRAMES, ids, (equal,))
