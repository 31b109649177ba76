"""Reads a partition of a coordinator's log when this broker begins to lead it. Its one rule: the
event loop neither waits for the disk nor decodes.

Pieces are brought into memory and replayed in the background, one after the other, from the log's
start to where it ended when the load began. Nobody but the coordinator that is being made appends
more, ends of transactions aside: those are told to it once it is made. Source: KIP-98.
"""

import importlib
import logging
from collections.abc import Callable
from typing import Any

from storage_engine.broker.coordination.load_troubles import DamagedLogError
from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.ports import Background
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segment_slice import SegmentSlice
from storage_engine.protocol.record_batch import crc_matches, iter_headers

PIECE_BYTES = 1 << 20
"""What is read and replayed at a time: a copy of it is made on the event loop."""

TROUBLES_TOLD = 100
"""Of one load, at most."""

log = logging.getLogger(__name__)

Content = Any
"""What the codec makes of the log."""


class StateLoad:
    """One load; `on_loaded` or `on_failed` is called once, unless it is cancelled before."""

    def __init__(
        self,
        log: PartitionLog,
        codec: str,
        background: Background,
        *,
        on_loaded: Callable[[Content], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`codec` names a module with `new_content` and `replay`; it needs Arrow, which takes long
        to load, and is imported in the background."""
        self._log = log
        self._codec = codec
        self._background = background
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._told = 0
        self._offset = log.log_start_offset
        self.end_offset = log.log_end_offset
        """Exclusive: what is read."""
        self._content: Content = None
        self._cancelled = False

    def start(self) -> None:
        self._background.submit(
            lambda: importlib.import_module(self._codec).new_content(), self._begin, self._failed
        )

    def cancel(self) -> None:
        self._cancelled = True

    def _begin(self, content: Content) -> None:
        self._content = content
        self._next()

    def _next(self) -> None:
        if self._cancelled:
            return
        try:
            piece = self._log.read(self._offset, max_bytes=PIECE_BYTES, max_offset=self.end_offset)
            job = None if piece is None else piece.load_job()
        except CorruptRecordError as failure:
            self._failed(DamagedLogError(self._offset, str(failure)))
            return
        except (KafkaError, OSError) as failure:
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
        if isinstance(failure, CorruptRecordError):
            failure = DamagedLogError(self._offset, str(failure))
        if failure is not None:
            self._failed(failure)
            return
        try:
            data = piece.read_bytes()
        except (KafkaError, OSError) as error:
            self._failed(error)
            return
        start_offset, self._offset = self._offset, piece.end_offset
        self._background.submit(
            lambda: _replay(self._codec, data, self._content, start_offset),
            self._replayed,
            self._failed,
        )

    def _replayed(self, troubles: list[str]) -> None:
        if self._cancelled:
            return
        for text in troubles[: TROUBLES_TOLD - self._told]:
            log.error("unreadable in the state log %s: %s", self._log.topic_partition, text)
        self._told = min(TROUBLES_TOLD, self._told + len(troubles))
        self._next()

    def _failed(self, failure: Exception) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._on_failed(failure)


def _replay(codec: str, data: bytes, content: Content, start_offset: int) -> list[str]:
    offset = start_offset
    try:
        for position, header in iter_headers(data):
            if not crc_matches(data, position, header.size_in_bytes):
                raise CorruptRecordError(f"the CRC of the batch at offset {offset} does not match")
            offset = header.last_offset + 1
    except CorruptRecordError as failure:
        raise DamagedLogError(offset, str(failure)) from None
    troubles: list[str] = importlib.import_module(codec).replay(data, content)
    return troubles
