"""Follows `_schemas`: one thread applies its records, in their order, to the state.

Only what is committed counts, so a writer that was fenced changes nothing. Readers take the lock
for as long as they look. When the log is not the one that was read any more, as after a topic was
deleted and made anew, all is read again from its beginning.
"""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.consumer.record_buffer import Piece
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import HeadraceError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.schemas.registry.registry_error import TIMED_OUT, RegistryError
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.net.deadline import Deadline

_POLL_MS = 500
_PAUSE_S = 0.5
_END_S = 5
_MOST_LOGGED = 20
"""Skipped records that the log names; all are counted."""

log = logging.getLogger(__name__)
Found = TypeVar("Found")


class Follower:
    """The state, as far as it is read."""

    def __init__(self, cluster: Callable[[], Cluster], topic: str) -> None:
        self._new_cluster = cluster
        self._tp = TopicPartition(topic, 0)
        self._changed = threading.Condition(threading.RLock())
        self._state = RegistryState()
        self._position = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def look(self, question: Callable[[RegistryState], Found]) -> Found:
        """The answer of the state, which does not change meanwhile."""
        with self._changed:
            return question(self._state)

    @property
    def position(self) -> int:
        """The offset before which all is applied, exclusive."""
        return self._position

    def wait_for(self, position: int, deadline: Deadline) -> None:
        """Return when all before this offset is applied. RegistryError when it is not in time."""
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._position >= position or self._ends.is_set(),
                deadline.left_ms / 1000,
            )
            if not there or self._position < position:
                raise RegistryError(TIMED_OUT, f"{self._tp} was not read back in time; try again")

    def read_to_end(self, cluster: Cluster, deadline: Deadline) -> None:
        """Return when all that is committed now is applied."""
        ends = cluster.list_offsets({self._tp: LATEST}, isolation="read_committed")
        self.wait_for(ends[self._tp], deadline)

    def _run(self) -> None:
        with self._new_cluster() as cluster:
            while not self._ends.is_set():
                try:
                    self._follow(cluster)
                except OffsetOutOfRangeError as error:
                    log.warning("the log is another one, and is read anew: %s", error)
                    self._begin_anew()
                except HeadraceError as error:
                    log.warning("following is interrupted: %s", error)
                self._ends.wait(_PAUSE_S)

    def _begin_anew(self) -> None:
        with self._changed:
            highest = self._state.highest_id
            self._state, self._position = RegistryState(), 0
            # Records elsewhere have the ids that were given.
            self._state.highest_id = highest

    def _follow(self, cluster: Cluster) -> None:
        start = self._position
        if start == 0:
            start = cluster.list_offsets({self._tp: EARLIEST})[self._tp]
            with self._changed:
                self._position = start
                self._changed.notify_all()
        reader = BatchFetcher(cluster, {self._tp: (start, None)}, isolation="read_committed")
        try:
            while not self._ends.is_set():
                for fetched in reader.poll(_POLL_MS):
                    self._apply(Piece(fetched))
        finally:
            reader.close()

    def _apply(self, piece: Piece) -> None:
        with self._changed:
            while piece.load():
                for record in piece.rows[piece.index :]:
                    self._apply_one(record.offset, record.key, record.value)
                piece.index = piece.count
            self._position = piece.next_offset
            self._changed.notify_all()

    def _apply_one(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        reason = self._state.apply(key, value)
        if reason is not None and self._state.skipped <= _MOST_LOGGED:
            log.warning("the record %s of %s is skipped: %s", offset, self._tp, reason)
            if self._state.skipped == _MOST_LOGGED:
                log.warning("further records that are skipped are counted, not named")
