"""Commits to a consumer group how far a query has read, so that lag tools see the query. It neither
fails nor delays the query, whose position is in Spark's checkpoint alone.

A thread with its own connections commits the newest positions, and skips older ones.
"""

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from connector.connections import new_cluster
from connector.options.connection_options import ConnectionOptions
from storage_engine.core.errors import AuthenticationError, DeadlineExceededError, HeadraceError
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.client.groups.committed_offsets import OffsetCommitter

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 10_000
"""The time for one commit with its retries. The next commit has newer positions anyway."""

RETRY_MS = 30_000
"""The pause before unusable connections are replaced, with the settings as they are then. Without
it, a wrong password, sent again and again, might lock the account."""

FLUSH_MS = 1_000
"""How long the end of a query waits for the last commit."""


class GroupOffsetCommits:
    """Commits the positions of one query. Its thread starts with the first of them."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._newest: tuple[str, Mapping[TopicPartition, int]] | None = None
        self._settled: tuple[str, Mapping[TopicPartition, int]] | None = None
        self._closing = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def note(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Notes that the query has read up to `positions`, exclusive."""
        with self._changed:
            if self._closing or self._newest == (group, positions):
                return
            self._newest = (group, positions)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-group-commits", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Waits up to FLUSH_MS for the commit of the positions noted last."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(FLUSH_MS / 1000)

    def _run(self) -> None:
        while True:
            try:
                self._commit_on()
                return
            except HeadraceError as error:
                # Such as a file of settings that is just being replaced, or has other secrets now.
                self._warn(error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._closing, RETRY_MS / 1000):
                        return

    def _warn(self, error: HeadraceError) -> None:
        """Log the error, once for each query."""
        if not self._warned and self._newest is not None:
            self._warned = True
            logger.warning(
                "the query goes on, but group '%s' is not told how far it has read: %s",
                self._newest[0],
                error,
            )

    def _commit_on(self) -> None:
        """Commit until the query ends, or until the connections are unusable."""
        from storage_engine.client.groups.committed_offsets import OffsetCommitter

        with new_cluster(self._connection) as cluster:
            offsets: OffsetCommitter | None = None
            while (wanted := self._next()) is not None:
                group, positions = wanted
                if offsets is None or offsets.group != group:
                    offsets = OffsetCommitter(cluster, group, deadline_ms=COMMIT_TIMEOUT_MS)
                error = _stored(offsets, positions)
                if isinstance(error, AuthenticationError):
                    raise error
                if error is not None:
                    self._warn(error)
                if not isinstance(error, DeadlineExceededError):
                    self._settled = wanted
                elif self._closing:
                    return

    def _next(self) -> tuple[str, Mapping[TopicPartition, int]] | None:
        """Waits for the group and the positions to commit next. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._newest != self._settled)
            return None if self._newest == self._settled else self._newest


def _stored(
    offsets: "OffsetCommitter", positions: Mapping[TopicPartition, int]
) -> HeadraceError | None:
    """Commits the positions. Returns the error of a failure, a DeadlineExceededError where trying
    again may help."""
    try:
        offsets.commit(positions)
    except HeadraceError as error:
        return error
    return None
