"""The local properties of a task, by which it knows its query."""

from uuid import uuid4

import pyspark

from connector.task_properties import query_run
from connector.tests.sink.task_context import RUN, Context


def test_the_run_is_what_spark_says_of_this_batch_and_no_job_group(monkeypatch):
    monkeypatch.setattr(pyspark, "TaskContext", Context)
    monkeypatch.setattr(Context, "group", str(uuid4()))
    assert query_run() == RUN, "a group of the user's hides nothing"
    for description in (
        None,
        "",
        "two tables",
        f"id = another\nrunId = {RUN}\nbatch = 7",
        f"id = query\nrunId = {RUN}\nbatch = 8",
        "id = query\nrunId = 12\nbatch = 7",
    ):
        monkeypatch.setattr(Context, "description", description)
        assert query_run() is None, description
    monkeypatch.setattr(Context, "description", f"id = x\n\nid = query\nrunId = {RUN}\nbatch = 7")
    assert query_run() == RUN, "whatever the query is called"
