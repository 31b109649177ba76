"""Keeps the transactions of a micro-batch from timing out while one of its tasks runs, also before
that task has rows and while it waits for them.

A heartbeat counts for all transactions of its micro-batch. So a slow task also keeps open the
transactions of finished tasks, which send no heartbeats any more. Source: R-SPARK2.
"""

import logging
import threading
from types import TracebackType
from typing import Self

from connector.connections import new_cluster
from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import MicroBatchId
from storage_engine.client.micro_batches import MicroBatches
from storage_engine.core.errors import AuthenticationError, ErrorCode, HeadraceError, KafkaError

logger = logging.getLogger(__name__)

BEATS_PER_TIMEOUT = 4
"""Three heartbeats in a row may be lost. With the default timeout of an hour most tasks end before
the first one."""


class Heartbeats:
    """A thread for the time of a `with` block. It opens connections of its own at its first
    heartbeat, because the task is blocked in Spark's iterator while it waits for rows."""

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
        """End the thread without waiting for a heartbeat under way: a late one harms nothing."""
        self._ended.set()

    def _run(self) -> None:
        interval_s = self._interval_ms / 1000
        while not self._ended.wait(interval_s):
            try:
                self._beat_on(interval_s)
            except HeadraceError as error:
                # Perhaps the file of settings is just being replaced, or has other secrets now: the
                # next try reads it again.
                logger.warning("a heartbeat of the sink can't be sent: %s", error)

    def _beat_on(self, interval_s: float) -> None:
        """Send heartbeats until the task ends, or the connections are unusable."""
        batch = self._batch
        with new_cluster(self._options.connection) as cluster:
            batches = MicroBatches(cluster, batch.sink, batch.query, deadline_ms=self._interval_ms)
            while True:
                self._beat(batches)
                if self._ended.wait(interval_s):
                    return

    def _beat(self, batches: MicroBatches) -> None:
        try:
            batches.heartbeat(self._batch.batch)
        except AuthenticationError:
            raise
        except KafkaError as error:
            # No transaction is open: no task has rows yet, or all were aborted, which the writer
            # finds out by itself.
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                logger.warning("a heartbeat of the sink failed: %s", error)
        except HeadraceError as error:
            logger.warning("a heartbeat of the sink failed: %s", error)
