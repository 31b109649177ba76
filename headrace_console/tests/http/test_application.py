"""Log-ins, the cookie, and files: the console without any cluster behind it."""

import threading
import time
from typing import Any

import httpx
import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http import application
from headrace_console.http.server_state import ServerState
from headrace_console.http.sessions import FAILURES_PER_USER
from headrace_console.tests.console_support import (
    NOWHERE,
    Browser,
    code_of,
    running_console,
    within,
)
from storage_engine.core.security.security_protocol import Secret

PASSWORD = "a long enough password"


def test_the_cookie_is_for_this_site_and_no_script(url) -> None:
    cookie = httpx.get(url + "api/v1/session").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie


def test_a_password_is_asked_for_and_tries_are_counted() -> None:
    settings = ConsoleSettings(bootstrap_servers=NOWHERE, port=0, password=Secret(PASSWORD))
    with running_console(settings) as url:
        stranger = Browser(url)
        assert not stranger.session["logged_in"] and stranger.session["csrf"] is None
        assert stranger.session["cluster"]["name"] is None
        for path in ("/overview", "/topics", "/queries", "/topics/x/messages"):
            answer = stranger.ask(path)
            assert (answer.status_code, code_of(answer)) == (401, "log_in"), path
        owner = Browser(url, password=PASSWORD)
        assert owner.session["logged_in"]
        assert owner.ask("/queries").status_code == 200
        codes = [
            code_of(stranger.client.post("/login", json={"password": "guess"}))
            for _ in range(FAILURES_PER_USER + 1)
        ]
        assert codes == ["log_in"] * FAILURES_PER_USER + ["too_many"]
        right = stranger.client.post("/login", json={"password": PASSWORD})
        assert right.status_code == 429 and int(right.headers["retry-after"]) > 0
        assert owner.change("POST", "/logout", {}).status_code == 200
        assert owner.ask("/queries").status_code == 401, "the session has ended on the server"
        for browser in (stranger, owner):
            browser.close()


def codes_of_guesses(url: str, *forwarded_for: str) -> list[str]:
    """A wrong password each, as a proxy passes it on."""
    with httpx.Client(base_url=f"{url}api/v1", timeout=60) as client:
        return [
            code_of(
                client.post(
                    "/login", json={"password": "guess"}, headers={"X-Forwarded-For": addresses}
                )
            )
            for addresses in forwarded_for
        ]


def test_guesses_are_counted_by_who_asks_a_trusted_proxy() -> None:
    settings = ConsoleSettings(
        bootstrap_servers=NOWHERE,
        port=0,
        password=Secret(PASSWORD),
        trusted_proxies=("127.0.0.1", "203.0.113.1"),
    )
    guesser = "203.0.113.5"
    with running_console(settings) as url:
        # Whatever the guesser puts before it: the proxy adds from where it asks.
        many = [f"198.51.100.{number}, {guesser}" for number in range(FAILURES_PER_USER)]
        codes = codes_of_guesses(url, *many, guesser, f"{guesser}, 203.0.113.1", "198.51.100.1")
    assert codes == ["log_in"] * FAILURES_PER_USER + ["too_many", "too_many", "log_in"]


def test_what_is_forwarded_by_others_is_not_believed() -> None:
    settings = ConsoleSettings(
        bootstrap_servers=NOWHERE,
        port=0,
        password=Secret(PASSWORD),
        trusted_proxies=("203.0.113.1",),
    )
    with running_console(settings) as url:
        many = [f"198.51.100.{number}" for number in range(FAILURES_PER_USER + 1)]
        assert codes_of_guesses(url, *many) == ["log_in"] * FAILURES_PER_USER + ["too_many"]


def test_files_beside_the_pages_are_not_served(url) -> None:
    for path in (
        "static/../server.py",
        "static/%2e%2e/server.py",
        "static/..%2fserver.py",
        "static/",
    ):
        assert httpx.get(f"{url}static/{path}").status_code == 404, path


@pytest.mark.usefixtures("no_thread_is_left")
def test_a_log_in_that_nobody_waits_for_any_more_leaves_no_connection(monkeypatch) -> None:
    closed = threading.Event()
    begun: list[str] = []

    class Opened:
        user = "alice"

        def close(self) -> None:
            closed.set()

    def slow(self: ServerState, user: str, password: str) -> Any:
        begun.append(user)
        time.sleep(1.0)
        return Opened()

    monkeypatch.setattr(ServerState, "check_log_in", slow)
    monkeypatch.setattr(ConsoleSettings, "needs_log_in", property(lambda self: True))
    monkeypatch.setattr(application, "ANSWER_TIMEOUT_S", 0.2)
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as url:
        browser = Browser(url)
        answer = browser.client.post("/login", json={"user": "alice", "password": "x"})
        assert answer.status_code == 504 and begun
        within(30, closed.is_set, "what it opened is closed")
        browser.close()
