"""The id of a micro-batch."""

from uuid import uuid4

import pyspark
import pytest

from connector.errors import ConnectorError
from connector.options.sink_options import parse_sink_options
from connector.sink.micro_batch import (
    MicroBatchId,
    batch_write_id,
    streaming_micro_batch,
    with_streaming_query,
)
from connector.tests.sink.task_context import RUN, Context
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_state import ONCE_PREFIX, named_write
from storage_engine.tests.core.transactions.coordinator_bench import CoordinatorBench, error


def _options(**options):
    return parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | options)


def test_a_streaming_query_is_its_own_sink_unless_that_has_a_name(monkeypatch):
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    assert streaming_micro_batch(_options()) == MicroBatchId(
        sink="query", query="query", batch=7, run=RUN
    )
    named = streaming_micro_batch(_options(sinkId="s"))
    assert named == MicroBatchId(sink="s", query="query", batch=7, run=RUN)


def test_jobs_of_two_groups_in_one_batch_do_not_refuse_each_other(monkeypatch):
    """Each job has a job group of its own, to be cancelled by itself, and names it by a UUID."""
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    monkeypatch.setattr(Context, "description", "one of two tables")
    coordinator = CoordinatorBench()
    seen = []
    for topic in ("t", "u"):
        monkeypatch.setattr(Context, "group", str(uuid4()))
        table = with_streaming_query(batch_write_id(_options(topic=topic, sinkId="s", batchId="7")))
        names = {"query": table.query, "owner": table.owner, "run": table.run}
        seen.append((coordinator.attempt(7, **names), names))
    for member, names in seen:
        assert error(coordinator.commit(7, member, **names)) is ErrorCode.NONE


def test_a_task_without_a_query_is_one_line():
    with pytest.raises(ConnectorError, match=r"\[NO_BATCH_ID\]"):
        streaming_micro_batch(_options())


def test_a_batch_write_is_repeatable_only_by_name():
    assert batch_write_id(_options()) != batch_write_id(_options())
    named = _options(sinkId="s")
    assert batch_write_id(named).sink == "s"
    assert batch_write_id(named).query != batch_write_id(named).query
    assert batch_write_id(named).query.startswith(ONCE_PREFIX), "brokers may forget it"
    assert batch_write_id(_options()).query.startswith(ONCE_PREFIX)
    repeatable = _options(sinkId="s", batchId="3")
    third = named_write("t", 3)
    assert not third.startswith(ONCE_PREFIX)
    assert batch_write_id(repeatable) == MicroBatchId(sink="s", query=third, batch=3, part="t")


def test_each_number_of_each_topic_is_a_write_by_itself():
    written = [
        batch_write_id(_options(sinkId="s", **more))
        for more in (
            {"batchId": "3"},
            {"batchId": "4"},
            {"batchId": "3", "topic": "u"},
            {"batchId": "3", "sinkPart": "part/3"},
        )
    ]
    assert len({each.query for each in written}) == len(written)
    together = {"batchId": "3", "sinkPart": "both"}
    assert batch_write_id(_options(sinkId="s", **together)) == batch_write_id(
        _options(sinkId="s", topic="u", **together)
    )
    by_column = parse_sink_options({"bootstrap.servers": "h:1", "sinkId": "s", "batchId": "3"})
    assert batch_write_id(by_column).query == named_write("", 3)


def test_a_named_write_within_foreach_batch_belongs_to_its_query(monkeypatch):
    named, unnamed = batch_write_id(_options(sinkId="s", batchId="3")), batch_write_id(_options())
    assert with_streaming_query(named) == named, "a job of no query"
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    seen = with_streaming_query(named)
    assert (seen.query, seen.owner, seen.run) == (named.query, "query", RUN)
    assert with_streaming_query(unnamed) == unnamed
    assert str(seen) == "batchId 3 of sink 's', part 't'"


def test_a_write_knows_its_call_of_foreach_batch_whatever_is_set_there(monkeypatch):
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    named = batch_write_id(_options(sinkId="s", batchId="3"))
    first = with_streaming_query(named).claim
    assert (first.micro_batch, first.write) == (7, named.write)
    other = with_streaming_query(batch_write_id(_options(sinkId="s", batchId="3"))).claim
    assert (other.attempt, other.write != first.write) == (first.attempt, True)
    monkeypatch.setattr(Context, "description", "one of two tables")
    monkeypatch.setattr(Context, "group", "mine")
    assert with_streaming_query(named).claim == first
    for name in ("application", "started", "execution"):
        with monkeypatch.context() as patch:
            patch.setattr(Context, name, "31")
            assert with_streaming_query(named).claim.attempt != first.attempt, name
    monkeypatch.setattr(Context, "execution", None)
    with pytest.raises(ConnectorError, match=r"\[NO_BATCH_ID\]"):
        with_streaming_query(named)


def test_a_note_of_moved_origins_may_be_forgotten_and_is_found_again_by_a_repetition(monkeypatch):
    options = _options(sinkId="s", idempotentKey="from,part,at")
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    first, second = (with_streaming_query(batch_write_id(options)).origins for _ in range(2))
    assert first.query == second.query != batch_write_id(options).query
    assert first.query.startswith(ONCE_PREFIX)
    assert first.claim.write != second.claim.write
