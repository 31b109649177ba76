"""The driver of the exactly-once sink reports the rows that were not written."""

import contextlib
import logging

import pytest

from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink import micro_batch_commit
from connector.sink.micro_batch import MicroBatchId
from connector.sink.micro_batch_commit import commit_micro_batch
from connector.sink.task_attempt import TaskAttemptResult
from storage_engine.client.micro_batches import CommitOutcome, CommitResult
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.protocol.apis.micro_batch_fields import CommittedBy

BATCH = MicroBatchId(sink="s", query="q", batch=0)
OPTIONS = parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"})
ALREADY = CommitOutcome.ALREADY_COMMITTED
BY_ORIGIN = f"{BATCH}: 5 rows dropped, because the sink already has rows of their origins"


class Claiming:
    """Takes note of the sink."""

    def claim_sink(self, batch):
        assert batch == BATCH.batch


def committed(rows: int, winner: int) -> CommittedBy:
    return CommittedBy("", None, rows, winner)


@pytest.mark.parametrize(
    ("commit", "rows", "dropped", "lines"),
    [
        (CommitResult(CommitOutcome.COMMITTED), 5, 5, [BY_ORIGIN]),
        (CommitResult(CommitOutcome.COMMITTED), 5, 0, []),
        # Its own answer was lost, maybe with the coordinator.
        (CommitResult(ALREADY, committed(10, 3), is_own=True), 5, 5, [BY_ORIGIN]),
        (CommitResult(ALREADY, committed(0, -1)), 0, 0, []),
        # A faithful replay of a batch of which the sink had five rows by origin.
        (
            CommitResult(ALREADY, committed(10, 3)),
            0,
            10,
            [f"{BATCH}: 10 rows dropped, it is committed already"],
        ),
        (
            CommitResult(ALREADY, committed(10, 3)),
            0,
            0,
            [
                f"{BATCH}: this replay has 0 rows, the committed batch has 10; "
                "readers see only the latter"
            ],
        ),
    ],
)
def test_rows_that_are_not_written_are_told_and_no_others(
    monkeypatch, caplog, commit, rows, dropped, lines
):
    class Batches(Claiming):
        def commit(self, *args, **more):
            assert (more["rows"], more["dropped"]) == (rows, dropped)
            return commit

    monkeypatch.setattr(micro_batch_commit, "cluster_for", lambda connection: None)
    monkeypatch.setattr(micro_batch_commit, "micro_batches", lambda *args, **more: Batches())
    message = TaskAttemptResult(batch=BATCH, member=None, drained=False, rows=rows, dropped=dropped)
    assert commit_micro_batch(OPTIONS, [message], 0) is commit.outcome
    assert [
        each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING
    ] == lines


@pytest.mark.parametrize("by_origin", [False, True])
@pytest.mark.parametrize(
    ("batch", "number", "remedy"),
    [
        (BATCH, 0, "restart the query"),
        (BATCH, None, "run the job again"),
        (
            MicroBatchId(sink="s", query="n", batch=0, part="p", owner="q"),
            None,
            "restart the query",
        ),
    ],
)
def test_the_error_of_a_lost_batch_names_the_remedy(monkeypatch, batch, number, remedy, by_origin):
    """Where another writer has moved the origins, even an open transaction is refused."""

    class Batches(Claiming):
        def commit(self, *args, **more):
            raise KafkaError("no open transaction: restart the query", ErrorCode.MEMBER_LOST)

    monkeypatch.setattr(micro_batch_commit, "cluster_for", lambda connection: None)
    monkeypatch.setattr(micro_batch_commit, "micro_batches", lambda *args, **more: Batches())
    keyed = {"sinkId": "s", "idempotentKey": "a,b,c"} if by_origin else {}
    options = parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | keyed)
    message = TaskAttemptResult(batch=batch, member=(7, 0), drained=False, rows=1)
    with pytest.raises(ConnectorError, match=rf"^\[MEMBER_LOST\] .*: {remedy}$") as raised:
        commit_micro_batch(options, [message], number)
    assert ("from the same sources" in str(raised.value)) == by_origin


@pytest.mark.parametrize(
    ("refusal", "is_committed"),
    [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True), (ErrorCode.BATCH_ID_TAKEN, False)],
)
def test_who_may_not_note_the_sink_commits_without(monkeypatch, refusal, is_committed):
    asked = []

    class Batches:
        def claim_sink(self, batch):
            asked.append("claim")
            raise KafkaError("refused", refusal)

        def commit(self, *args, **more):
            asked.append("commit")
            return CommitResult(CommitOutcome.COMMITTED)

    monkeypatch.setattr(micro_batch_commit, "cluster_for", lambda connection: None)
    monkeypatch.setattr(micro_batch_commit, "micro_batches", lambda *args, **more: Batches())
    message = TaskAttemptResult(batch=BATCH, member=(7, 0), drained=False, rows=1)
    told = contextlib.nullcontext() if is_committed else pytest.raises(ConnectorError)
    with told:
        commit_micro_batch(OPTIONS, [message], 0)
    assert asked == (["claim", "commit"] if is_committed else ["claim"])


@pytest.mark.parametrize(
    ("sink", "number", "part"), [("q", 0, None), ("s", None, None), ("s", None, "p")]
)
def test_only_streams_with_a_sink_id_note_their_sink(monkeypatch, sink, number, part):
    class Batches:
        def commit(self, *args, **more):
            return CommitResult(CommitOutcome.COMMITTED)

    monkeypatch.setattr(micro_batch_commit, "cluster_for", lambda connection: None)
    monkeypatch.setattr(micro_batch_commit, "micro_batches", lambda *args, **more: Batches())
    batch = MicroBatchId(sink=sink, query="q", batch=0, part=part)
    message = TaskAttemptResult(batch=batch, member=(7, 0), drained=False, rows=1)
    assert commit_micro_batch(OPTIONS, [message], number) is CommitOutcome.COMMITTED
