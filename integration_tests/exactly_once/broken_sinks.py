"""The streaming sink, broken on purpose, to show that the judgement of exactly once finds it. Each
is right as long as no fault is injected.

    early-ack     the driver hears that a batch is committed some time before it is
    replay-twice  a restarted driver counts from the beginning: a batch that it runs again is
                  written again
    retry-drops   a task that is tried again leaves out the first of its rows
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from connector.sink.micro_batch import MicroBatchId, streaming_micro_batch
from integration_tests.exactly_once import sink_moments
from integration_tests.exactly_once.sink_moments import MomentsWriter

LATE_S = 5.0
"""From the answer to the commit: whoever kills the driver of a busy query finds a batch on its way,
and the soak does so in the end at the latest."""

DROPPED = 1
"""Record batches of a task that is tried again."""


class EarlyAck(MomentsWriter):
    """Acknowledges before it commits."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        later(lambda: super(EarlyAck, self).commit(messages, batchId))
        sink_moments.moment(self._folder, "answered", batchId)


class ReplayTwice(MomentsWriter):
    """Its query id does not survive its driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        def renamed(options: Any) -> MicroBatchId:
            batch = streaming_micro_batch(options)
            return replace(batch, query=f"{batch.query}-{incarnation()}")

        with patch("connector.sink.writers.streaming_micro_batch", renamed):
            return super().write(iterator)


class RetryDrops(MomentsWriter):
    """Believes that a failed attempt's first rows are there."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(itertools.islice(iterator, DROPPED * is_retried(), None))


BROKEN: dict[str, type[MomentsWriter]] = {
    "early-ack": EarlyAck,
    "replay-twice": ReplayTwice,
    "retry-drops": RetryDrops,
}


def later(act: Callable[[], None]) -> None:
    """Runs it after LATE_S, if this process lives then."""
    timer = threading.Timer(LATE_S, act)
    timer.daemon = True
    timer.start()


def incarnation() -> int:
    """A name of this driver, whose processes are in a session of their own."""
    return os.getsid(0)


def is_retried() -> bool:
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
