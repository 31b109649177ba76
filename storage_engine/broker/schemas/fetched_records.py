"""The keys and values in a fetch's answer, decoded on any thread."""

from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.fetched_parts import committed, iter_parts
from storage_engine.protocol.records.record_batch import iter_headers

UNPACKED_MAX_BYTES = 16 << 20
"""The most bytes of a batch after its decompression; a larger one counts as damaged."""


class FetchedRecords(NamedTuple):
    records: Sequence[tuple[bytes | None, bytes | None]]
    """Keys and values of committed records."""
    next_offset: int
    """The offset behind the last batch."""
    last_epoch: int
    """The leader epoch of the last batch; -1 without one."""
    damaged: int
    """The number of batches that were left out, since nobody can decode them."""


def fetched_records(
    answer: memoryview, aborted: Sequence[tuple[int, int]], start_offset: int
) -> FetchedRecords:
    """Decode the whole batches of an answer. CorruptRecordError where it can't be cut into them."""
    # The import is here: it loads Arrow, which a broker without such topics saves.
    from storage_engine.protocol.records.record_decoder import iter_decoded

    found: list[tuple[bytes | None, bytes | None]] = []
    next_offset, last_epoch, damaged = start_offset, -1, 0
    for part in iter_parts(answer, framed=False):
        next_offset, last_epoch = part.next_offset, part.leader_epoch
    for piece in committed(answer, aborted):
        for at, header in iter_headers(piece):
            batch = piece[at : at + header.size_in_bytes]
            try:
                for rows in iter_decoded(
                    batch, start_offset=start_offset, max_decompressed_bytes=UNPACKED_MAX_BYTES
                ):
                    found += zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True)
            except CorruptRecordError:
                damaged += 1
    return FetchedRecords(found, next_offset, last_epoch, damaged)
