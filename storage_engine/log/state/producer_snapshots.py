"""Snapshots of a log's producers on disk. A snapshot that is not intact counts as missing.

`<offset>.snapshot` holds the producers as they were when the log ended at `offset` (big endian):

    field            bytes  meaning
    magic             4     "HPS3"
    crc               4     CRC-32C of all that follows
    forgotten_to      8     highest producer id that may be missing, see core.retained
    count             4     number of producers
    ongoing           4     number of open transactions
    ended             4     number of ended ones (see core.retained.producer_table)
    then per producer:
      producer_id     8
      epoch           2
      last_seen_ms    8     timestamp of the last batch
      coordinator_epoch 4   of its last marker; -1: none
      batches         1     0 to 5, oldest first
      then per batch:
        first_sequence 4, last_sequence 4, base_offset 8, last_offset 8, timestamp_ms 8
    then per open transaction:
        producer_id 8, first_offset 8
    then per ended one:
        first_offset 8, last_offset 8

Written when the log rolls and when it is closed, so that opening a log scans one segment's headers
at most. Source: KIP-98.
"""

import logging
import struct
from pathlib import Path

from crc32c import crc32c

from storage_engine.core.errors import LogDirError
from storage_engine.core.retained.producer_state import (
    ProducerEntry,
    ProducerStates,
)
from storage_engine.core.retained.producer_table import (
    BATCH,
    PRODUCER,
    EndedTransaction,
    PartitionTransactions,
    unpacked,
)
from storage_engine.core.system_errors import passes_by_itself
from storage_engine.log.files.disk import Disk, replace_file, sync_names
from storage_engine.log.segments.log_segment import file_name, offset_in_name

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOTS_KEPT = 3
"""The newest few are kept, for the next opening, and for truncations near the end. Older state is
learned from the batches.
"""

_MAGIC = b"HPS3"
_START = struct.Struct(">4sI")
_HEAD = struct.Struct(">qIII")
_BATCHES = struct.Struct(">B")
_ONE_BATCH = _BATCHES.pack(1)
_PAIR = struct.Struct(">qq")

logger = logging.getLogger(__name__)


def encode(states: ProducerStates) -> bytes:
    ongoing, ended = states.transactions.ongoing, states.transactions.ended
    body = bytearray(_HEAD.pack(states.forgotten_to, len(states), len(ongoing), len(ended)))
    body += states.packed()
    for pair in (*ongoing.items(), *ended):
        body += _PAIR.pack(*pair)
    return _START.pack(_MAGIC, crc32c(body)) + body


def decode(data: bytes) -> ProducerStates:
    """Decode a snapshot, the inverse of `encode`; ValueError when the bytes are not intact."""
    if len(data) < _START.size:
        raise ValueError("it is cut off")
    magic, crc = _START.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("it is of another format")
    if crc != crc32c(memoryview(data)[_START.size :]):
        raise ValueError("its CRC does not match")
    try:
        return _decode(data)
    except struct.error as error:
        raise ValueError(f"its counts do not fit its length ({error})") from error


def _decode(data: bytes) -> ProducerStates:
    forgotten_to, count, ongoing_count, ended_count = _HEAD.unpack_from(data, _START.size)
    at = _START.size + _HEAD.size
    entries: list[ProducerEntry | bytes] = []
    count_at, one_size = PRODUCER.size - _BATCHES.size, PRODUCER.size + BATCH.size
    for _ in range(count):
        if data[at + count_at : at + count_at + 1] == _ONE_BATCH:
            # Most are like this, and there may be many.
            entries.append(data[at : at + one_size])
            at += one_size
            continue
        entry, at = _decode_producer(data, at)
        entries.append(entry)
    ongoing_end = at + ongoing_count * _PAIR.size
    ended_end = ongoing_end + ended_count * _PAIR.size
    if ended_end != len(data):
        raise ValueError(f"it has {len(data)} bytes, its counts say {ended_end}")
    return ProducerStates(
        entries,
        forgotten_to=forgotten_to,
        transactions=PartitionTransactions(
            _PAIR.iter_unpack(data[at:ongoing_end]),
            map(EndedTransaction._make, _PAIR.iter_unpack(data[ongoing_end:ended_end])),
        ),
    )


def _decode_producer(data: bytes, at: int) -> tuple[ProducerEntry, int]:
    """Return the producer at `at`, and where the next one begins."""
    count = _BATCHES.unpack_from(data, at + PRODUCER.size - _BATCHES.size)[0]
    end = at + PRODUCER.size + count * BATCH.size
    return unpacked(data[at:end]), end


class ProducerSnapshots:
    """The snapshot files of one partition's folder."""

    __slots__ = ("_directory", "_disk", "_offsets", "_synced")

    def __init__(self, disk: Disk, directory: Path, names: list[str]) -> None:
        self._disk = disk
        self._directory = directory
        offsets = (offset_in_name(name, SNAPSHOT_SUFFIX) for name in names)
        self._offsets = sorted(offset for offset in offsets if offset is not None)
        self._synced = -1
        """The offset of a snapshot that is on the medium, if it is still there; -1: unknown."""

    def write(self, offset: int, states: ProducerStates, *, recovery_point: int = 0) -> None:
        """Keeps `states` as those at `offset`, and only the newest few snapshots, with the newest
        that an opening uses after a crash, none above `recovery_point`, and one on the medium.

        Without fsync: a snapshot that a crash of the machine tears has the wrong CRC.
        """
        if offset == self._synced:
            self._synced = -1
        replace_file(self._disk, self._path(offset), encode(states), sync=False)
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])
        used_after_crash = self.newest_in(1, recovery_point)
        older = [old for old in self._offsets[:-SNAPSHOTS_KEPT] if old != used_after_crash]
        if older and used_after_crash is not None and self._synced not in self._offsets:
            self.sync(used_after_crash)
        for old in older:
            if old != self._synced:
                self._remove(old)

    def newest_in(self, first: int, last: int) -> int | None:
        """Return the offset of the newest snapshot from `first` to `last`, both inclusive."""
        return max((each for each in self._offsets if first <= each <= last), default=None)

    def sync(self, offset: int) -> None:
        """Brings the snapshot of `offset` to the medium, with its name."""
        if offset == self._synced:
            return
        path = self._path(offset)
        descriptor = self._disk.open_existing(path)
        try:
            self._disk.sync(descriptor)
        except OSError as error:
            # The errno does not matter: the kernel may count the pages as clean.
            raise LogDirError(f"can't sync {path}: {error}") from error
        finally:
            self._disk.close(descriptor)
        sync_names(self._disk, self._directory)
        self._synced = offset

    def load_newest(self, max_offset: int) -> tuple[int, ProducerStates] | None:
        """Return the newest intact snapshot at or before `max_offset`; later ones and damaged ones
        are removed.
        """
        for offset in reversed(self._offsets.copy()):
            if offset <= max_offset:
                path = self._path(offset)
                try:
                    return offset, decode(self._disk.read_file(path))
                except (OSError, ValueError) as error:
                    if isinstance(error, OSError) and passes_by_itself(error):
                        # The error says nothing about the file, which may be intact.
                        raise
                    logger.warning("snapshot ignored, it is damaged file=%s reason=%s", path, error)
            self._remove(offset)
        return None

    def newest_before(self, offset: int) -> tuple[int, ProducerStates] | None:
        """Return the newest intact snapshot at or before `offset`; nothing is removed."""
        for known in reversed(self._offsets):
            if known <= offset:
                try:
                    return known, decode(self._disk.read_file(self._path(known)))
                except (OSError, ValueError) as error:
                    if isinstance(error, OSError) and passes_by_itself(error):
                        raise
        return None

    def remove_above(self, offset: int) -> None:
        """Removes snapshots above `offset`: the end that a truncation leaves, or after an unclean
        stop the recovery point, since a crash of the machine may have brought back a snapshot of
        records that were truncated."""
        for later in [kept for kept in self._offsets if kept > offset]:
            self._remove(later)

    def folder_is_renamed(self, path: Path) -> None:
        self._directory = path

    def remove_all(self) -> None:
        for offset in self._offsets.copy():
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._offsets.remove(offset)
        self._disk.remove(self._path(offset))

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)
