"""Tells the coordinator that a task is at work. Its one rule: from a task's beginning to its end,
also before it has rows and while it waits for them.

A task that has finished has nobody to keep its transaction alive; any heartbeat of the same
micro-batch does, so a slow task keeps those of its quick siblings open. Source: R-SPARK2.
"""

import logging
import threading
from types import TracebackType
from typing import Self

from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import MicroBatchId
from storage_engine.client.cluster import Cluster
from storage_engine.client.micro_batches import MicroBatches
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError

logger = logging.getLogger(__name__)

BEATS_PER_TIMEOUT = 4
"""Three may be lost. With the default timeout of an hour most tasks end before their first."""


class Heartbeats:
    """A thread with connections of its own, which it opens at its first heartbeat."""

    def __init__(self, options: SinkOptions, batch: MicroBatchId) -> None:
        self._options = options
        self._batch = batch
        self._interval_ms = options.transaction_timeout_ms // BEATS_PER_TIMEOUT
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Without waiting for a heartbeat under way: a late one harms nothing."""
        self._ended.set()

    def _run(self) -> None:
        interval_s = self._interval_ms / 1000
        if self._ended.wait(interval_s):
            return
        connection, batch = self._options.connection, self._batch
        with Cluster(
            connection.bootstrap_servers,
            client_id=connection.client_id,
            request_timeout_ms=connection.request_timeout_ms,
        ) as cluster:
            batches = MicroBatches(cluster, batch.sink, batch.query, deadline_ms=self._interval_ms)
            while True:
                self._beat(batches)
                if self._ended.wait(interval_s):
                    return

    def _beat(self, batches: MicroBatches) -> None:
        try:
            batches.heartbeat(self._batch.batch)
        except KafkaError as error:
            # No task of the batch has rows yet, or all were given up, which the writer will find.
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                logger.warning("a heartbeat of the sink failed: %s", error)
        except HeadraceError as error:
            logger.warning("a heartbeat of the sink failed: %s", error)
