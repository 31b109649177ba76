"""Reads a partition of the state log when this broker begins to lead it. Its one rule: the event
loop neither waits for the disk nor decodes.

Pieces are brought into memory and replayed in the background, one after the other, from the log's
start to where it ended when the load began; nobody but the coordinator that is being made would
append more. Source: KIP-98.
"""

import importlib
from collections.abc import Callable

from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.ports import Background
from storage_engine.core.transaction_state import StateKey, StateRecord
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segment_slice import SegmentSlice

PIECE_BYTES = 1 << 20
"""What is read and replayed at a time: a copy of it is made on the event loop."""

Content = dict[StateKey, StateRecord]


class StateLoad:
    """One load; `on_loaded` or `on_failed` is called once, unless it is cancelled before."""

    def __init__(
        self,
        log: PartitionLog,
        background: Background,
        *,
        on_loaded: Callable[[Content], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._background = background
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._offset = log.log_start_offset
        self.end_offset = log.log_end_offset
        """Exclusive: what is read."""
        self._content: Content = {}
        self._cancelled = False

    def start(self) -> None:
        # The codec needs Arrow, which takes long to load.
        self._background.submit(_load_codec, lambda _: self._next(), self._failed)

    def cancel(self) -> None:
        self._cancelled = True

    def _next(self) -> None:
        if self._cancelled:
            return
        try:
            piece = self._log.read(self._offset, max_bytes=PIECE_BYTES, max_offset=self.end_offset)
            job = None if piece is None else piece.load_job()
        except KafkaError as failure:
            self._failed(failure)
            return
        if piece is None or job is None:
            self._on_loaded(self._content)
        else:
            self._background.submit(
                job.run, lambda failure: self._warm(piece, failure), self._failed
            )

    def _warm(self, piece: SegmentSlice, failure: KafkaError | None) -> None:
        if self._cancelled:
            return
        if failure is not None:
            self._failed(failure)
            return
        try:
            data = piece.read_bytes()
        except (KafkaError, OSError) as error:
            self._failed(error)
            return
        self._offset = piece.end_offset
        self._background.submit(
            lambda: _replay(data, self._content), lambda _: self._next(), self._failed
        )

    def _failed(self, failure: Exception) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._on_failed(failure)


def _load_codec() -> None:
    importlib.import_module("storage_engine.protocol.transaction_batches")


def _replay(data: bytes, content: Content) -> None:
    # Only here: see `StateLoad.start`.
    from storage_engine.protocol.record_batch import crc_matches, iter_headers
    from storage_engine.protocol.transaction_batches import replay

    for position, header in iter_headers(data):
        if not crc_matches(data, position, header.size_in_bytes):
            raise CorruptRecordError(
                f"the CRC of the batch at offset {header.base_offset} does not match"
            )
    replay(data, content)
