"""Which frames of a micro-batch this process has written. A second frame for one place of the
ledger, in the same call of `foreachBatch`, would find the note of the first one, and be taken for
its repetition.

The driver calls the sinks, so this memory lasts as long as a run of the query. After a restart it
is empty, and each place may be written once more. Source: R-SPARK4.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from connector.errors import ConnectorError
from connector.task_properties import BATCH_ID, root_execution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MicroBatchCall(NamedTuple):
    """A call of `foreachBatch`."""

    micro_batch: str
    """Spark's number of the micro-batch; a user may pass another number to the sink."""
    attempt: UUID
    """The id of this execution of the micro-batch: a repetition has another one."""


class _Frame(NamedTuple):
    """The last frame of a place, which is written or just being written."""

    batch: int
    call: MicroBatchCall


class FramesOfCalls:
    """The last frame of each place. Several threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, ...], _Frame] = {}

    @contextmanager
    def only_one(
        self, place: tuple[str, ...], batch: int, call: MicroBatchCall | None
    ) -> Iterator[None]:
        """Admit one frame for a place in a call, and another one only after a failure: else
        ConnectorError BATCH_ID_TAKEN. `call`: None where Spark does not report it."""
        if call is None:
            yield
            return
        with self._lock:
            before = self._last.get(place)
            if before is not None and before.batch == batch:
                _check(before, call, table=place[1])
            self._last[place] = _Frame(batch, call)
        try:
            yield
        except BaseException:
            with self._lock:
                if before is None:
                    del self._last[place]
                else:
                    self._last[place] = before
            raise


def _check(before: _Frame, call: MicroBatchCall, *, table: str) -> None:
    if before.call.micro_batch != call.micro_batch:
        raise ConnectorError(
            "BATCH_ID_TAKEN",
            f"the batch {before.batch} was written into the table '{table}' by micro-batch "
            f"{before.call.micro_batch}, and this is {call.micro_batch}: pass on the number that "
            "Spark gives",
        )
    if before.call.attempt == call.attempt:
        raise ConnectorError(
            "BATCH_ID_TAKEN",
            f"this is a second frame for the table '{table}' in micro-batch {call.micro_batch}, "
            "and none of its rows is written: give each KeyedSink a part of its own",
        )


def call_of(frame: "DataFrame") -> MicroBatchCall | None:
    """The call of `foreachBatch` that this thread is in. None outside of one, in a thread that was
    started without `in_session`, and with Spark Connect."""
    from pyspark.errors import PySparkException

    try:
        read = frame.sparkSession.sparkContext.getLocalProperty
    except PySparkException:
        return None
    micro_batch, attempt = read(BATCH_ID), root_execution(read)
    return None if micro_batch is None or attempt is None else MicroBatchCall(micro_batch, attempt)
