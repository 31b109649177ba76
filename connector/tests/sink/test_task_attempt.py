"""A task attempt of the exactly-once sink, with a coordinator that answers as the test wants."""

import pyarrow as pa
import pytest

from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink import task_attempt
from connector.sink.micro_batch import MicroBatchId
from connector.sink.task_attempt import join, write_in_transaction
from storage_engine.client.connection import NotServedError
from storage_engine.client.micro_batches import AlreadyCommitted, MicroBatchMember
from storage_engine.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from storage_engine.core.ids import TopicPartition

BATCH = MicroBatchId(sink="s", query="q", batch=3)
BY_ORIGIN = parse_sink_options(
    {
        "bootstrap.servers": "h:1",
        "topic": "t",
        "sinkId": "s",
        "idempotentKey": "from,part,at",
        "originServers": "none",
    }
)


class Coordinator:
    """Another run commits the batch before the join of the given number."""

    sink = "s"

    def __init__(self, *, joins: int, committed: dict[TopicPartition, int]) -> None:
        self._joins = joins
        self._committed = committed

    def join(self, batch, timeout_ms):
        if self._joins == 0:
            return AlreadyCommitted(self._committed)
        self._joins -= 1
        return MicroBatchMember(self, batch, 7, 0, {})

    def abort(self, members):
        """Accepts the abort of members that have ended."""

    def heartbeat(self, batch):
        """Accepts every heartbeat."""


def piece(offsets: range) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "value": pa.array(["x"] * len(offsets)),
            "from": pa.array(["src"] * len(offsets)),
            "part": pa.array([0] * len(offsets)),
            "at": pa.array(offsets),
        }
    )


def write(monkeypatch, *, joins: int, taken: int, has: int):
    """A task of two pieces with the offsets 100 to 119, of which it takes some before its
    transaction ends; the sink has all up to `has`."""
    coordinator = Coordinator(joins=joins, committed={TopicPartition("src", 0): has})

    def write_gathered(options, cluster, rows, *, transaction, typed):
        for _ in range(taken):
            next(rows)
        raise KafkaError("ended", ErrorCode.INVALID_TXN_STATE)

    monkeypatch.setattr(task_attempt, "gather", iter)
    monkeypatch.setattr(task_attempt, "cluster_for", lambda connection: None)
    monkeypatch.setattr(task_attempt, "micro_batches", lambda *args, **more: coordinator)
    monkeypatch.setattr(task_attempt, "write_gathered", write_gathered)
    return write_in_transaction(
        BY_ORIGIN, BATCH, iter([piece(range(100, 110)), piece(range(110, 120))])
    )


@pytest.mark.parametrize(("joins", "taken"), [(0, 0), (1, 0), (1, 1), (1, 2)])
def test_rows_that_the_sink_does_not_have_are_an_error_whenever_the_batch_was_committed(
    monkeypatch, joins, taken
):
    """Also those that were written in a transaction that another run's commit has ended."""
    with pytest.raises(ConnectorError, match=r"^\[CHECKPOINT_REWOUND\] .* from src-0 at offset 1"):
        write(monkeypatch, joins=joins, taken=taken, has=99)
    faithful = write(monkeypatch, joins=joins, taken=taken, has=119)
    assert (faithful.drained, faithful.dropped) == (True, 20)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NotServedError, "at-least-once, and without sinkId, batchId, "),
        (UnsupportedVersionError, "install the connector's version on the brokers first"),
    ],
)
def test_brokers_that_do_not_commit_batches_are_told_from_older_ones(error, remedy):
    class Batches:
        def join(self, batch, timeout_ms):
            raise error("broker 1 serves no such JoinBatch")

    with pytest.raises(ConnectorError, match=r"^\[EXACTLY_ONCE_NOT_SERVED\] broker 1") as raised:
        join(Batches(), BY_ORIGIN, BATCH)
    assert remedy in str(raised.value)
    assert ("at-least-once" in str(raised.value)) == (error is NotServedError)
