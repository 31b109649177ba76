"""The checkers' copies of logs: a note per batch, chained, so that two logs that agree in one note
agree in all before it.

A note's chain stands for everything up to and including its batch. The note of a compacted log is
that of the log before its compaction: the removed records were committed, and are known from then.
"""

from typing import NamedTuple

from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers

READ_BYTES = 1 << 20


class BatchNote(NamedTuple):
    """A batch in a log."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int
    producer: tuple[int, int, int]
    """The producer id, producer epoch and first sequence."""
    is_transactional: bool
    marker_commits: bool | None
    """True for a marker that commits its transaction, False for one that aborts it; None for all
    other batches."""
    chain: int

    def __str__(self) -> str:
        return f"{self.base_offset}..{self.end_offset - 1} of epoch {self.leader_epoch}"


class NotedLog:
    """Notes of all batches from offset 0."""

    def __init__(self) -> None:
        self.notes: list[BatchNote] = []
        self.place_of_end: dict[int, int] = {0: -1}
        """The index of the note that ends at an offset, by that end offset."""
        self.begun_at = 0
        """Where the log began anew, behind records that were deleted elsewhere; 0: nowhere."""

    @property
    def end_offset(self) -> int:
        return self.notes[-1].end_offset if self.notes else 0

    def add(self, note: BatchNote) -> None:
        self.place_of_end[note.end_offset] = len(self.notes)
        self.notes.append(note)

    def cut_to(self, end_offset: int) -> list[BatchNote]:
        """Drop and return the notes that end above `end_offset`."""
        dropped = []
        while self.notes and self.notes[-1].end_offset > end_offset:
            note = self.notes.pop()
            del self.place_of_end[note.end_offset]
            dropped.append(note)
        return dropped

    def has(self, note: BatchNote) -> bool:
        """Return True when it has the batch and all batches before it, as the log of the note
        has."""
        place = self.place_of_end.get(note.end_offset)
        return place is not None and self.notes[place].chain == note.chain

    def holds(self, other: "NotedLog") -> bool:
        """Return True when it begins with all of the other."""
        count = len(other.notes)
        if not count:
            return True
        return len(self.notes) >= count and self.notes[count - 1].chain == other.notes[-1].chain

    def follow(
        self, log: PartitionLog, committed: "NotedLog | None" = None
    ) -> tuple[list[BatchNote], list[BatchNote]]:
        """Bring the notes up to a log that has either grown or been truncated since; return (cut,
        added). `committed`: for a log that may be compacted, everything that was ever committed in
        its partition."""
        end_offset = log.log_end_offset
        cut = self.cut_to(end_offset) if end_offset < self.end_offset else []
        if committed is not None and log.log_start_offset > self.end_offset:
            # It has begun anew, behind records that were deleted: nothing is left of what it had.
            self.begun_at = log.log_start_offset
            cut += self.cut_to(0)
        if end_offset == self.end_offset:
            return cut, []
        before = len(self.notes)
        self._read(log, committed)
        return cut, self.notes[before:]

    def _read(self, log: PartitionLog, committed: "NotedLog | None") -> None:
        # What lies before the log's start was committed, and is known from then.
        offset = max(self.end_offset, log.log_start_offset)
        while (piece := log.reads.read(offset, max_bytes=READ_BYTES)) is not None:
            data = piece.view()
            for position, header in iter_headers(data):
                offset = header.next_offset
                if committed is not None and self._fill(committed, offset, header):
                    continue
                commits = None
                if header.is_control:
                    marker = read_marker(data[position : position + header.size_in_bytes])
                    commits = marker is not None and marker.commits
                self.add(_note(header, commits, self.notes[-1].chain if self.notes else 0))
        end_offset = log.log_end_offset
        if committed is not None and self.end_offset < end_offset:
            if log.log_start_offset == end_offset:
                # It may begin amid a batch, which it does not have yet.
                ends = committed.place_of_end
                end_offset = max(each for each in ends if each <= end_offset)
            self._fill(committed, end_offset, None)
        if self.end_offset < end_offset:
            # Compaction has removed everything there, and its content is unknown.
            self.add(_GAP._replace(base_offset=self.end_offset, end_offset=end_offset))

    def _fill(self, committed: "NotedLog", end_offset: int, header: BatchHeader | None) -> bool:
        """Note what was committed up to there, as it was before compaction; return True when that
        ends with the batch of the header."""
        place = committed.place_of_end.get(end_offset)
        known = None if place is None or place < 0 else committed.notes[place]
        is_there = known is not None and (
            header is None or known.leader_epoch == header.partition_leader_epoch
        )
        if not is_there:
            # This is a batch that is not committed, perhaps after a gap of committed ones.
            place = None if header is None else committed.place_of_end.get(header.base_offset)
        first = committed.place_of_end.get(self.end_offset)
        if place is not None and first is not None and self._agrees(committed, first):
            for note in committed.notes[first + 1 : place + 1]:
                self.add(note)
        return is_there and self.end_offset == end_offset

    def _agrees(self, committed: "NotedLog", place: int) -> bool:
        """Return True when its last note is that of the committed batches at the place, or unknown:
        a log that has diverged stays so."""
        if not self.notes or place < 0 or self.notes[-1].leader_epoch < 0:
            return True
        return self.notes[-1].chain == committed.notes[place].chain


def noted(
    log: PartitionLog, committed: NotedLog | None = None, before: NotedLog | None = None
) -> NotedLog:
    """Return the notes of a whole log. `before`: the notes of a log that this one should equal;
    where nothing was committed for certain they alone have the records deleted at its beginning."""
    notes = NotedLog()
    if committed is None and before is not None:
        for note in before.notes:
            if note.end_offset <= log.log_start_offset:
                notes.add(note)
    notes.follow(log, committed)
    return notes


def _note(header: BatchHeader, marker_commits: bool | None, chain: int) -> BatchNote:
    return BatchNote(
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.crc,
        (header.producer_id, header.producer_epoch, header.base_sequence),
        header.is_transactional,
        marker_commits,
        hash((chain, header.base_offset, header.partition_leader_epoch, header.crc)),
    )


_GAP = BatchNote(0, 0, -1, 0, (-1, -1, -1), False, None, 0)
