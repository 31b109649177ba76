"""Which queries a user sees, and what an open cluster does not have."""

from types import SimpleNamespace

import httpx
import pytest

from headrace_console.http.api_cluster import visible_queries
from headrace_console.queries.query_store import SparkQuery
from headrace_console.tests.made_snapshots import snapshot

QUERIES = [
    SparkQuery(id="seen", source_topics=("t0",), sink_topics=("t1",)),
    SparkQuery(id="in part", source_topics=("t0",), sink_topics=("secret",)),
    SparkQuery(id="letters", source_topics=("t0",), dead_letter_topic="secret"),
    SparkQuery(id="without topics"),
]


def seen(mechanism, shown):
    state = SimpleNamespace(
        queries=SimpleNamespace(all=lambda: QUERIES), settings=SimpleNamespace(mechanism=mechanism)
    )
    return [query.id for query in visible_queries(SimpleNamespace(state=state), shown)]


def test_where_users_log_in_a_query_is_shown_to_those_that_see_all_its_topics():
    assert seen("PLAIN", snapshot(topics=2)) == ["seen"]
    assert seen("PLAIN", None) == []
    assert seen(None, None) == [query.id for query in QUERIES]


@pytest.mark.parametrize("path", ["users", "acls"])
def test_a_cluster_without_log_ins_has_no_users_and_no_rules(url, path):
    answer = httpx.get(f"{url}api/v1/access/{path}")
    assert answer.status_code == 501
    assert "docs/security.md describes how to secure a cluster" in answer.text
