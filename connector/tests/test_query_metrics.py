"""A console hears of streaming queries by the events that Spark passes to a listener."""

import json
from types import SimpleNamespace

import pytest

from connector import commit_notes, query_metrics
from connector.commit_notes import SinkCommit, tell_commit
from connector.query_metrics import QueryMetrics, what_is_read
from connector.tests.console_in_memory import console_in_memory


@pytest.fixture
def console(tmp_path, monkeypatch):
    monkeypatch.setattr(commit_notes, "notes_folder", lambda: tmp_path / "notes")
    with console_in_memory() as made:
        yield made


def _event(query, *, name="copies", exception=None, **progress):
    run = f"run of {query}"
    found = SimpleNamespace(id=query, runId=run, name=name, json=json.dumps(progress))
    return SimpleNamespace(id=query, runId=run, name=name, exception=exception, progress=found)


def _commit(query, number):
    counts = {"tasks": 2, "rows": 30, "duration_ms": 5}
    return SinkCommit(query=query, sink="the sink", batch_id=number, **counts, outcome="committed")


def test_each_event_has_the_name_of_its_query_until_the_end(console):
    listener = QueryMetrics(console.url)
    listener.onQueryStarted(_event("q"))
    listener.onQueryProgress(_event("q", numInputRows=3))
    listener.onQueryIdle(_event("q", name=None))
    listener.onQueryTerminated(_event("q", name=None, exception="it failed"))
    listener.onQueryIdle(_event("q", name=None))
    listener.close()
    assert console.kinds() == ["started", "progress", "idle", "terminated", "idle"]
    names = [each["query"]["name"] for each in console.events]
    assert names == ["copies"] * 4 + [None]
    assert console.events[1]["progress"] == {"numInputRows": 3}
    assert console.events[3]["exception"] == "it failed"
    assert listener.posted == 5


def test_a_commit_goes_with_the_next_event_of_its_query_and_no_other(console, monkeypatch):
    monkeypatch.setattr(query_metrics, "COMMITS_MAX", 3)
    listener = QueryMetrics(console.url, dead_letter_topic="dead")
    for number in range(5):
        tell_commit(_commit("q", number))
    for query in ("other", "q", "q"):
        listener.onQueryIdle(_event(query))
    listener.close()
    other, first, second = console.events
    assert (other["commits"], other["sink"], second["commits"]) == ([], None, [])
    numbers = [commit["batch_id"] for commit in first["commits"]]
    assert numbers == [2, 3, 4], "the newest are kept"
    assert second["sink"] == {"sink_id": "the sink", "topics": [], "dead_letter_topic": "dead"}


def test_a_sink_of_this_format_is_known_by_its_description(console):
    listener = QueryMetrics(console.url)
    for sink in ({"description": "HeadraceTable[t]"}, {"description": "kafka"}, None):
        listener.onQueryProgress(_event("q", sink=sink))
    listener.close()
    found = [each["sink"] and each["sink"]["sink_id"] for each in console.events]
    assert found == ["q", None, None]


def test_queries_that_are_kept_are_bounded(console, monkeypatch):
    monkeypatch.setattr(query_metrics, "QUERIES_MAX", 2)
    listener = QueryMetrics(console.url)
    for query in "abc":
        listener.onQueryStarted(_event(query))
    for query in "abc":
        listener.onQueryIdle(_event(query))
    listener.close()
    idle = [each["query"]["name"] for each in console.events if each["kind"] == "idle"]
    assert idle == [None, "copies", "copies"]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], ([], None)),
        ([{"endOffset": '{"t":{"0":5}}', "latestOffset": None}], (["t"], None)),
        (
            [
                {
                    "endOffset": '{"t":{"0":5,"1":3},"@ids":{"t":"x"}}',
                    "latestOffset": '{"t":{"0":9,"1":2,"2":7},"@lag":{"max":4}}',
                },
                {"endOffset": {"u": {"0": 1}}, "latestOffset": {"u": {"0": 2}}},
            ],
            (["t", "u"], 5),
        ),
        ([{"endOffset": "12", "latestOffset": "no JSON"}], ([], None)),
        ([{"endOffset": '{"t":{"0":"x"}}', "latestOffset": '{"t":7}'}], ([], None)),
    ],
)
def test_topics_and_lag_are_those_of_sources_of_this_format(sources, expected):
    """A partition that the query has not reached counts for nothing, nor one that is ahead."""
    assert what_is_read(sources) == expected
