"""Posting to a console: what it takes arrives once and in order, and nobody waits for it."""

import json
import time

import pytest

from connector import progress_posts
from connector.errors import ConnectorError
from connector.progress_posts import EVENTS_PER_POST, QUEUED_MAX, ProgressPosts
from connector.tests.console_in_memory import console_in_memory


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(progress_posts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(progress_posts, "TIMEOUT_S", 0.5)


def _add(posts: ProgressPosts, count: int, **more: object) -> None:
    for number in range(count):
        event = {"number": number, "query": {"id": "q"}, "kind": "idle", "progress": None, **more}
        posts.add(lambda event=event: event)


def _numbers(console) -> list[int]:
    return [event["number"] for event in console.events]


def _until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_events_arrive_once_in_order_with_the_headers_of_the_contract():
    with console_in_memory() as console:
        posts = ProgressPosts(console.url, token="secret")
        _add(posts, 3 * EVENTS_PER_POST)
        posts.close(20)
        assert _numbers(console) == list(range(3 * EVENTS_PER_POST))
        assert all(len(post["events"]) <= EVENTS_PER_POST for post in console.posts)
        assert console.posts[0]["format"] == 1
        headers = console.headers[0]
        assert headers["X-Headrace-Progress"] == "1"
        assert headers["Authorization"] == "Bearer secret"
        assert "Origin" not in headers
        assert (posts.posted, posts.dropped) == (3 * EVENTS_PER_POST, 0)


@pytest.mark.parametrize("status", [429, 503])
def test_a_console_that_is_busy_gets_the_same_again(status):
    with console_in_memory() as console:
        console.statuses = [status, status]
        posts = ProgressPosts(console.url)
        _add(posts, 2)
        _until(lambda: posts.posted == 2)
        posts.close()
        assert _numbers(console) == [0, 1]


def test_what_the_console_refuses_is_dropped_and_told(caplog):
    with console_in_memory() as console:
        console.statuses = [401]
        posts = ProgressPosts(console.url)
        _add(posts, 1)
        _until(lambda: posts.dropped == 1)
        posts.close()
        assert "1 events of queries are not shown" in caplog.text
        assert "answered 401" in caplog.text


def test_nobody_waits_for_a_console_that_hangs_and_the_oldest_events_go():
    with console_in_memory() as console:
        console.hangs.set()
        posts = ProgressPosts(console.url)
        _add(posts, 1)
        _until(lambda: not posts._queue)
        begun_s = time.monotonic()
        _add(posts, QUEUED_MAX + 50)
        assert time.monotonic() - begun_s < 5
        assert posts.dropped == 50
        console.hangs.clear()
        _until(lambda: posts.posted == QUEUED_MAX + 1)
        posts.close()
        assert _numbers(console)[-1] == QUEUED_MAX + 49


def test_a_console_that_is_not_there_costs_the_end_no_more_than_its_time():
    posts = ProgressPosts("http://127.0.0.1:1")
    _add(posts, 5)
    begun_s = time.monotonic()
    posts.close(2)
    assert time.monotonic() - begun_s < 10
    assert posts.dropped == 5


def test_a_post_is_never_larger_than_the_console_takes():
    with console_in_memory() as console:
        posts = ProgressPosts(console.url)
        _add(posts, 5, exception="x" * 100_000)
        _add(posts, 1, progress={"huge": "y" * 400_000})
        posts.close(20)
        assert len(console.events) == 6
        assert max(len(json.dumps(post)) for post in console.posts) < 256 << 10
        assert console.events[-1]["progress"] is None


def test_an_event_that_can_not_be_made_costs_no_other(caplog):
    def broken() -> None:
        raise ValueError("on purpose")

    with console_in_memory() as console:
        posts = ProgressPosts(console.url)
        posts.add(broken)
        _add(posts, 1)
        posts.close(20)
        assert _numbers(console) == [0]
        assert "on purpose" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8080", "ftp://console", "http://", "http://console:99999", "http://console:x"),
        *("http://[::1", "http://a..b:8080", "http://console:8080/\u00e4"),
    ],
)
def test_an_address_that_is_none_is_one_line(url):
    with pytest.raises(ConnectorError, match="BAD_CONSOLE"):
        ProgressPosts(url)


def test_a_token_is_not_sent_to_another_machine_in_the_clear():
    with pytest.raises(ConnectorError, match="take https"):
        ProgressPosts("http://console.example:8080", token="secret")
    ProgressPosts("https://console.example:8080", token="secret")


@pytest.mark.parametrize("token", ["sec\nret", "sec\rret", "geheim-\u20ac"])
def test_a_token_that_no_header_can_have_is_refused_without_being_told(token):
    with pytest.raises(ConnectorError, match="token") as refused:
        ProgressPosts("http://127.0.0.1:8080", token=token)
    assert token not in str(refused.value)


def test_the_line_end_of_a_token_from_a_file_is_no_part_of_it():
    with console_in_memory() as console:
        posts = ProgressPosts(console.url, token="secret\n")
        _add(posts, 1)
        posts.close(5)
        assert posts.posted == 1
