"""What a search for messages is asked for, and what is refused before the cluster is."""

import pytest

from headrace_console.given import Params
from headrace_console.http.api_messages import MOST_PARTITIONS, search_request
from headrace_console.problem import ConsoleError
from headrace_console.tests.console_support import Browser


def request(**given):
    pairs = [(k, each) for k, v in given.items() for each in (v if isinstance(v, list) else [v])]
    return search_request("t", Params(pairs))


def test_without_parameters_the_newest_committed_messages_are_meant():
    found = request()
    assert (found.start, found.limit, found.isolation) == ("newest", 50, "read_committed")
    assert (found.partitions, found.columns, found.where) == ((), None, None)
    assert found.search.is_everything


def test_partitions_count_once_and_columns_may_have_spaces():
    found = request(partition=["2", "0", "2"], columns="a, b", until="9", since="5")
    assert (found.partitions, found.columns) == ((2, 0), ("a", "b"))
    assert (found.search.since_ms, found.search.until_ms) == (5, 9)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"limit": "0"}, "'limit' must be a whole number from 1 to 500"),
        ({"isolation": "all"}, "read_committed or read_uncommitted"),
        ({"partition": ["1"] * (MOST_PARTITIONS + 1)}, f"given {MOST_PARTITIONS} times at most"),
        ({"path": "$.a"}, "'path' needs 'equals'"),
        ({"regex": "1", "value": "("}, r"'\(' is not a regular expression"),
    ],
)
def test_a_search_that_can_not_be_is_refused(given, complaint):
    with pytest.raises(ConsoleError, match=complaint):
        request(**given)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/t/messages/0/1/raw", 400),
        (f"/topics/t/messages/{2**31}/0", 404),
        (f"/topics/t/messages/0/{2**63}", 404),
        ("/topics/t/batches", 400),
    ],
)
def test_a_place_that_can_not_be_is_refused_before_the_cluster_is_asked(url, path, status):
    browser = Browser(url)
    assert browser.ask(path, part="all").status_code == status
    browser.close()
