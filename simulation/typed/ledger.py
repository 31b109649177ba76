"""The rows of the typed topics that were ever committed, by offset, and the checks against them."""

from collections.abc import Iterator, Sequence
from functools import cache

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.compaction import CompactedReplicas
from simulation.shared import Run
from simulation.typed.rows import ReadRow, TypedRow, rows_of_typed, typed_batches
from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.ids import TopicPartition

WHOLE = "a typed topic has the rows that were written, at their offsets"
OWN_SCHEMA = "a typed topic takes only batches of its own schema"


class TypedLedger(CompactedReplicas):
    """The rows of one run."""

    def __init__(self, run: Run, compacted: Sequence[TopicPartition]) -> None:
        super().__init__(run, compacted)
        self.topic_id = cache(run.cluster.topic_id)
        self._sent: dict[int, TypedRow] = {}
        """The rows that producers have sent, by their numbers."""
        self._rows: dict[TopicPartition, dict[int, ReadRow]] = {}
        """The committed rows by partition and offset."""

    def __len__(self) -> int:
        """Return the number of committed rows."""
        return sum(map(len, self._rows.values()))

    def sends(self, rows: Sequence[TypedRow]) -> None:
        """Record rows that will be sent."""
        self._sent |= {row.number: row for row in rows}

    def on_committed(self, tp: TopicPartition, note: BatchNote, broker: int) -> None:
        """Take the rows of a batch that is committed now."""
        rows = self._read(tp, memoryview(self.batch(tp, note, broker)))
        if [row.offset for row in rows] != list(range(note.base_offset, note.end_offset)):
            raise InvariantViolation(WHOLE, f"{tp} at {note}: {rows}")
        self._rows.setdefault(tp, {}).update((row.offset, row) for row in rows)

    def check_acknowledged(
        self, tp: TopicPartition, offset: int, rows: Sequence[TypedRow], name: str
    ) -> None:
        """Check that these rows are committed from that offset on."""
        found = [self._rows.get(tp, {}).get(offset + place) for place in range(len(rows))]
        if not all(
            read is not None and _is(read, row) for read, row in zip(found, rows, strict=True)
        ):
            raise InvariantViolation(
                "what acks=all acknowledged is committed",
                f"{tp} at {offset}: {name}'s rows {list(rows)}, committed is {found}",
            )

    def check_read(self, tp: TopicPartition, rows: Sequence[ReadRow], reader: str) -> None:
        """Check rows that a leader has served."""
        known = self._rows.get(tp, {})
        for row in rows:
            if known.get(row.offset) != row:
                raise InvariantViolation(
                    WHOLE, f"{tp}: {reader} got {row}, committed is {known.get(row.offset)}"
                )

    def check_complete(
        self,
        tp: TopicPartition,
        offsets: range,
        rows: Sequence[ReadRow],
        reader: str,
        name: str | None,
    ) -> None:
        """Check that a leader has served all rows of these offsets; with `name` all rows of that
        name that are no tombstones."""
        found = {row.offset for row in rows}
        known = self._rows.get(tp, {})
        for offset in offsets:
            row = known.get(offset)
            if row is None or offset in found:
                continue
            if name is None or (row.name == name and not row.is_tombstone):
                raise InvariantViolation(WHOLE, f"{tp}: {reader} was not served {row}")

    def _lost(self, tp: TopicPartition, pieces: Iterator[bytes]) -> str | None:
        known = self._rows.get(tp, {})
        left: dict[str, ReadRow] = {}
        for row in (row for piece in pieces for row in self._read(tp, memoryview(piece))):
            if known.get(row.offset) != row:
                return f"{row}, committed was {known.get(row.offset)}"
            left[row.name] = row
        for name, newest in {row.name: row for row in known.values()}.items():
            if left.get(name) != newest and not (newest.is_tombstone and name not in left):
                return f"{left.get(name)} of {name}, the newest is {newest}"
        return None

    def _read(self, tp: TopicPartition, data: memoryview) -> list[ReadRow]:
        """Return the rows of whole batches, each of which must be as its producer wrote it."""
        found: list[ReadRow] = []
        try:
            for header, batch, directory in typed_batches(data):
                if directory.topic_id != self.topic_id(tp.topic):
                    raise InvariantViolation(
                        OWN_SCHEMA,
                        f"{tp} at {header.base_offset} has a batch of {directory.topic_id}",
                    )
                found += rows_of_typed(header, batch)
        except CorruptRecordError as error:
            raise InvariantViolation(WHOLE, f"{tp}: {error}") from None
        except KafkaError as error:
            # The version of the schema is none of the topic's.
            raise InvariantViolation(OWN_SCHEMA, f"{tp}: {error}") from None
        for row in found:
            if row.number is not None and not _is(row, self._sent.get(row.number)):
                raise InvariantViolation(
                    WHOLE, f"{tp}: {row}, sent was {self._sent.get(row.number)}"
                )
        return found


def _is(read: ReadRow, row: TypedRow | None) -> bool:
    if row is None or read.name != row.name:
        return False
    if row.is_tombstone:
        return read.is_tombstone and read.text is None
    return (read.number, read.text) == (row.number, row.text)
