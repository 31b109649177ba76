"""Reads and checks the files of a log that describe producers and transactions.

It only reads, and trusts nothing. Source: KIP-98; the formats are described in
`log/segments/transaction_index.py`, `log/state/producer_snapshots.py` and
`protocol/records/control_record.py`.
"""

from collections.abc import Iterator
from pathlib import Path

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.log.segments import transaction_index
from storage_engine.log.state.producer_snapshots import decode
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.inspection.segment_check import IndexEntryReport

Marker = tuple[int, bool]
"""Producer id, and whether it commits."""


def marker_document(batch: memoryview, header: BatchHeader) -> dict[str, str | int | None]:
    """The content of a control batch, as a document."""
    try:
        marker = read_marker(batch)
    except CorruptRecordError as error:
        return {"type": None, "problem": str(error)}
    if marker is None:
        return {"type": "other"}
    return {
        "type": "commit" if marker.commits else "abort",
        "coordinator_epoch": marker.coordinator_epoch,
    }


def check_transaction_index(
    data: memoryview, log: memoryview | None
) -> Iterator[tuple[IndexEntryReport, AbortedTransaction | None]]:
    """Check every entry of a `.txnindex` file. Each must name an abort marker of the log beside it;
    the last may be a seal, which is a checksum of the entries before it."""
    entry_bytes = transaction_index.ENTRY.size
    seal_at = len(data) // entry_bytes * entry_bytes - entry_bytes
    seal = data[max(seal_at, 0) :][:entry_bytes]
    is_sealed = seal[:2] == transaction_index.seal_of(b"")[:2]
    rest = len(data) % entry_bytes
    if is_sealed:
        data = data[:seal_at]
    markers = None if log is None else dict(_markers(log))
    previous = -1
    number = -1
    for number, (version, aborted) in enumerate(transaction_index.entries(data)):
        problem = None
        if version != transaction_index.VERSION:
            problem = f"version {version}, only {transaction_index.VERSION} is known"
        elif aborted.last_offset <= previous:
            problem = "does not increase"
        elif aborted.first_offset >= aborted.last_offset:
            problem = f"begins at offset {aborted.first_offset}, behind its marker"
        elif aborted.last_stable_offset > aborted.last_offset + 1:
            problem = f"last stable offset {aborted.last_stable_offset} is behind its marker"
        elif markers is not None and markers.get(aborted.last_offset) != (
            aborted.producer_id,
            False,
        ):
            problem = f"the log has no abort marker of its producer at {aborted.last_offset}"
        previous = aborted.last_offset
        yield IndexEntryReport(number, aborted.last_offset, aborted.producer_id, problem), aborted
    if is_sealed and seal != transaction_index.seal_of(data):
        number += 1
        yield IndexEntryReport(number, -1, -1, "the seal does not agree with the entries"), None
    if rest:
        yield (
            IndexEntryReport(number + 1, -1, -1, f"{rest} bytes at the end are no whole entry"),
            None,
        )


def _markers(log: memoryview) -> Iterator[tuple[int, Marker]]:
    """The markers of a log file by their offsets, up to the first damage."""
    try:
        for position, header in iter_headers(log):
            if not header.is_control:
                continue
            marker = read_marker(log[position : position + header.size_in_bytes])
            if marker is not None:
                yield header.base_offset, (header.producer_id, marker.commits)
    except CorruptRecordError:
        return


def snapshot_documents(path: Path) -> Iterator[Document]:
    """The producers in a `.snapshot` file; CommandError when it is not intact."""
    try:
        states = decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}") from None
    ongoing = states.transactions.ongoing
    for producer in states:
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "last_timestamp": None if last is None else last.timestamp_ms,
            "transaction_first_offset": ongoing.get(producer.producer_id),
        }
