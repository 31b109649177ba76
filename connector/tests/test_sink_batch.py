"""What identifies a micro-batch."""

import pickle

import pyspark
import pytest

from connector.batch_writer import HeadraceBatchWriter
from connector.errors import ConnectorError
from connector.options import parse_sink_options
from connector.sink_batch import REPEATABLE, SinkBatch, batch_write, streaming_batch
from storage_engine.core.sink_names import ONCE_PREFIX


def _options(**options):
    return parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"} | options)


class Context:
    """Stands for TaskContext, in a task of a streaming query."""

    @classmethod
    def get(cls):
        return cls()

    def getLocalProperty(self, name):
        return {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7"}.get(name)


def test_a_streaming_query_is_its_own_sink_unless_that_has_a_name(monkeypatch):
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    assert streaming_batch(_options()) == SinkBatch(sink="query", query="query", batch=7)
    named = streaming_batch(_options(sinkId="s"))
    assert named == SinkBatch(sink="s", query="query", batch=7)


def test_a_task_without_a_query_is_one_line():
    with pytest.raises(ConnectorError, match=r"\[NO_BATCH_ID\]"):
        streaming_batch(_options())


def test_a_batch_write_is_repeatable_only_by_name():
    assert batch_write(_options()) != batch_write(_options())
    named = _options(sinkId="s")
    assert batch_write(named).sink == "s"
    assert batch_write(named).query != batch_write(named).query
    assert batch_write(named).query.startswith(ONCE_PREFIX), "brokers may forget it"
    assert batch_write(_options()).query.startswith(ONCE_PREFIX)
    repeatable = _options(sinkId="s", batchId="3")
    assert not REPEATABLE.startswith(ONCE_PREFIX)
    assert batch_write(repeatable) == SinkBatch(sink="s", query=REPEATABLE, batch=3)


def test_the_tasks_and_the_commit_of_a_job_write_the_same_batch():
    writer = HeadraceBatchWriter(_options())
    assert pickle.loads(pickle.dumps(writer))._batch == writer._batch
