"""Tasks and drivers of the exactly-once sink without Spark around them, on a real broker: what
becomes of a task whose transaction ends under it, of one that fails, and of one whose siblings are
slow. Source: R-SPARK2; docs/sink-protocol.md.
"""

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from connector.connections import close_all, cluster_for
from connector.errors import ConnectorError
from connector.options.sink_options import SinkOptions, parse_sink_options
from connector.sink import record_writer
from connector.sink.heartbeats import Heartbeats
from connector.sink.micro_batch import MicroBatchId
from connector.sink.micro_batch_commit import abort_members, commit_micro_batch
from connector.sink.task_attempt import TaskAttemptResult, write_in_transaction
from connector.sink.writers import HeadraceBatchWriter
from integration_tests.support.cluster_support import (
    DEADLINE_S,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.spark_support import consume
from storage_engine.client.cluster import LATEST
from storage_engine.client.micro_batches import CommitOutcome, MicroBatches
from storage_engine.client.producer.produce import WORK_MS
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.local.local_cluster import LocalCluster

TIMEOUT_MS = 3_000
ROWS = 10
"""Of a piece, and what is written together."""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("transaction.state.log.num.partitions", "2"),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"),
    )
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made
    close_all()


@pytest.fixture
def options(spark_cluster, servers, topic, monkeypatch) -> SinkOptions:
    create_topic(spark_cluster, topic, replication_factor=1)
    monkeypatch.setattr(record_writer, "GATHER_ROWS", ROWS)
    return parse_sink_options({"bootstrap.servers": servers, "topic": topic})


@pytest.fixture
def batch() -> MicroBatchId:
    return MicroBatchId(sink=str(uuid.uuid4()), query=str(uuid.uuid4()), batch=0)


def rows(value: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value] * ROWS)})


def read(options: SinkOptions) -> dict[str, int]:
    """How often each value is read."""
    assert options.topic is not None
    values = [
        (each.value() or b"").decode()
        for each in consume(options.connection.bootstrap_servers, options.topic)
    ]
    return {value: values.count(value) for value in values}


def sent(
    options: SinkOptions, piece: pa.RecordBatch, more_than: int = 0
) -> Iterator[pa.RecordBatch]:
    """A piece, and again until the broker has more records than that: a writer sends what it has
    once in WORK_MS, and the broker is told when it is."""
    tp = TopicPartition(str(options.topic), 0)

    def has_more() -> bool:
        return cluster_for(options.connection).list_offsets({tp: LATEST})[tp] > more_than

    deadline = time.monotonic() + DEADLINE_S
    while not has_more():
        assert time.monotonic() < deadline, "the broker has no rows of the task"
        yield piece
        time.sleep(2 * WORK_MS / 1000)


def wait_for_markers(options: SinkOptions) -> None:
    """Who commits or aborts is answered once it is decided; until the marker is there a leader
    takes rows of the transaction, which nobody will read."""
    tp, cluster = TopicPartition(str(options.topic), 0), cluster_for(options.connection)

    def none_is_open() -> bool:
        stable = cluster.list_offsets({tp: LATEST}, isolation="read_committed")
        return stable == cluster.list_offsets({tp: LATEST})

    wait_until(none_is_open, "no transaction is open")


def batches_of(options: SinkOptions, batch: MicroBatchId) -> MicroBatches:
    return MicroBatches(cluster_for(options.connection), batch.sink, batch.query)


def test_a_task_of_a_committed_batch_drops_its_rows(options, batch):
    first = write_in_transaction(options, batch, [rows("a"), rows("b")])
    idle = write_in_transaction(options, batch, [])
    assert (idle.member, idle.drained) == (None, False)
    assert commit_micro_batch(options, [first, idle], 0) is CommitOutcome.COMMITTED
    replay = write_in_transaction(options, batch, [rows("other"), rows("b")])
    assert (replay.member, replay.drained) == (None, True)
    assert commit_micro_batch(options, [replay], 0) is CommitOutcome.ALREADY_COMMITTED
    assert read(options) == {"a": ROWS, "b": ROWS}


def test_a_zombie_whose_batch_another_driver_commits_drops_its_rows(options, batch):
    left = []

    def meanwhile() -> Iterator[pa.RecordBatch]:
        yield from sent(options, rows("zombie"))
        # Its first rows are with the broker, now the other driver's commit sweeps them.
        successor = write_in_transaction(options, batch, [rows("successor")])
        assert commit_micro_batch(options, [successor], 0) is CommitOutcome.COMMITTED
        wait_for_markers(options)
        yield from (rows("zombie"), rows("zombie"))
        left.append("nothing")

    zombie = write_in_transaction(options, batch, meanwhile())
    assert zombie.drained and left == ["nothing"]
    assert commit_micro_batch(options, [zombie], 0) is CommitOutcome.ALREADY_COMMITTED
    assert read(options) == {"successor": ROWS}


def test_a_zombie_whose_rows_another_driver_did_not_commit_is_an_error(options, batch, servers):
    """By their origin, also of those that it took before that commit ended its transaction."""
    named = {"sinkId": batch.sink, "idempotentKey": "from,part,at", "originServers": "none"}
    by_origin = parse_sink_options(
        {"bootstrap.servers": servers, "topic": options.topic or ""} | named
    )

    def piece(value: str, begin: int) -> pa.RecordBatch:
        origin = {"from": ["source"] * ROWS, "part": [0] * ROWS, "at": range(begin, begin + ROWS)}
        return pa.record_batch(
            {"value": [value] * ROWS} | {k: pa.array(v) for k, v in origin.items()}
        )

    def meanwhile() -> Iterator[pa.RecordBatch]:
        yield from sent(options, piece("zombie", ROWS))
        successor = write_in_transaction(by_origin, batch, [piece("successor", 0)])
        assert commit_micro_batch(by_origin, [successor], 0) is CommitOutcome.COMMITTED
        wait_for_markers(options)
        yield from (piece("zombie", 0), piece("zombie", 0))

    with pytest.raises(ConnectorError, match=rf"^\[CHECKPOINT_REWOUND\] .* offset {2 * ROWS - 1}:"):
        write_in_transaction(by_origin, batch, meanwhile())
    assert read(options) == {"successor": ROWS}


def test_a_task_whose_transaction_ends_under_it_is_told_and_its_batch_can_be_written_again(
    options, batch, monkeypatch
):
    joined = []
    join = MicroBatches.join

    def noted(self, *args, **kwargs):
        joined.append(join(self, *args, **kwargs))
        return joined[-1]

    monkeypatch.setattr(MicroBatches, "join", noted)

    def meanwhile() -> Iterator[pa.RecordBatch]:
        yield from sent(options, rows("lost"))
        batches_of(options, batch).abort([joined[0].id])
        wait_for_markers(options)
        yield rows("lost")

    with pytest.raises(ConnectorError, match=r"^\[MEMBER_LOST\] the transaction of a task was"):
        write_in_transaction(options, batch, meanwhile())
    # The second question opened a transaction that nobody writes in; it is given up too.
    assert len(joined) == 2
    with pytest.raises(ConnectorError, match=r"^\[MEMBER_LOST\] "):
        lost = TaskAttemptResult(batch=batch, member=joined[1].id, drained=False, rows=0)
        commit_micro_batch(options, [lost], 0)
    again = write_in_transaction(options, batch, [rows("again")])
    assert commit_micro_batch(options, [again], 0) is CommitOutcome.COMMITTED
    assert read(options) == {"again": ROWS}


def test_a_task_that_fails_gives_up_what_it_wrote(options, batch):
    def fails() -> Iterator[pa.RecordBatch]:
        yield rows("given up")
        yield rows("given up")
        raise RuntimeError("the user's function")

    with pytest.raises(RuntimeError, match="the user's function"):
        write_in_transaction(options, batch, fails())
    # Else readers would wait for an hour.
    assert read(options) == {}


def test_what_accepted_tasks_wrote_is_given_up_when_their_batch_is(options, batch):
    accepted = write_in_transaction(options, batch, [rows("given up")])
    abort_members(options, [accepted, None])
    assert read(options) == {}
    with pytest.raises(ConnectorError, match=r"^\[MEMBER_LOST\] "):
        commit_micro_batch(options, [accepted], 0)


def test_a_job_that_fails_gives_up_also_what_spark_has_not_heard_of(options):
    writer = HeadraceBatchWriter(options)
    left = []

    def meanwhile() -> Iterator[pa.RecordBatch]:
        yield from sent(options, rows("given up"), more_than=ROWS)
        writer.abort([None, None])
        wait_for_markers(options)
        yield from (rows("given up"), rows("given up"))
        left.append("nothing")

    writer.write(iter([rows("given up")]))
    zombie = writer.write(meanwhile())
    assert isinstance(zombie, TaskAttemptResult)
    assert zombie.drained and left == ["nothing"]
    assert read(options) == {}


def test_a_named_batch_that_failed_can_be_written_again(options, servers):
    named = {"bootstrap.servers": servers, "topic": str(options.topic), "sinkId": "daily"}
    for batch_id in ("3", "4"):
        first = HeadraceBatchWriter(parse_sink_options(named | {"batchId": batch_id}))
        first.abort([first.write(iter([rows("given up")])), None])
        second = HeadraceBatchWriter(parse_sink_options(named | {"batchId": batch_id}))
        second.commit([second.write(iter([rows(batch_id)]))])
    assert read(options) == {"3": ROWS, "4": ROWS}


def test_a_batch_is_not_committed_in_part(options, batch):
    written = write_in_transaction(options, batch, [rows("a")])
    other = MicroBatchId(sink=batch.sink, query=batch.query, batch=1)
    of_another = TaskAttemptResult(batch=other, member=None, drained=False, rows=0)
    for messages, batch_id in (([written, None], 0), ([written, of_another], 0), ([written], 1)):
        with pytest.raises(ConnectorError, match=r"^\[NOT_COMMITTED\] the \d tasks of batch"):
            commit_micro_batch(options, messages, batch_id)
    # Of a batch that is not committed nobody can have been told that it is.
    drained = TaskAttemptResult(batch=batch, member=None, drained=True, rows=0)
    with pytest.raises(ConnectorError, match=r"^\[NOT_COMMITTED\] CommitBatch"):
        commit_micro_batch(options, [written, drained], 0)
    abort_members(options, [written])
    assert read(options) == {}


@pytest.mark.parametrize("beating", [True, False])
def test_a_slow_task_keeps_the_transactions_of_its_siblings_open(
    options, batch, monkeypatch, beating
):
    if not beating:
        monkeypatch.setattr(Heartbeats, "_run", lambda self: None)
    named = parse_sink_options(
        {
            "bootstrap.servers": options.connection.bootstrap_servers,
            "topic": options.topic,
            "transaction.timeout.ms": str(TIMEOUT_MS),
        }
    )
    quick = write_in_transaction(named, batch, [rows("quick")])

    def slowly() -> Iterator[pa.RecordBatch]:
        # Longer than the timeout, and the look of the broker for what has timed out.
        time.sleep(2 * TIMEOUT_MS / 1000)
        yield rows("slow")

    slow = write_in_transaction(named, batch, slowly())
    if beating:
        assert commit_micro_batch(named, [quick, slow], 0) is CommitOutcome.COMMITTED
        assert read(options) == {"quick": ROWS, "slow": ROWS}
        return
    with pytest.raises(ConnectorError, match=r"^\[MEMBER_LOST\] "):
        commit_micro_batch(named, [quick, slow], 0)
    abort_members(named, [slow])
    assert read(options) == {}
