"""What a change needs: the token of its session, JSON, and a console that may change things."""

import time

import httpx
import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import NOWHERE, Browser, code_of, running_console


def test_a_change_needs_the_token_of_its_session_and_json(url) -> None:
    browser, other = Browser(url), Browser(url)
    body = {"name": "x"}
    for token in ({}, {"X-CSRF-Token": "no"}, {"X-CSRF-Token": other.session["csrf"]}):
        answer = browser.client.post("/topics", json=body, headers=token)
        assert (answer.status_code, code_of(answer)) == (403, "csrf")
    right = {"X-CSRF-Token": browser.session["csrf"]}
    form = browser.client.post("/topics", data=body, headers=right)
    assert (form.status_code, code_of(form)) == (400, "bad_request")
    nobody = httpx.post(url + "api/v1/topics", json=body, headers=right)
    assert (nobody.status_code, code_of(nobody)) == (401, "log_in")
    for data in (b"{", b"[]", b'{"name": NaN}', b"[" * 100_000, b"\xff"):
        answer = browser.client.post(
            "/topics", content=data, headers={**right, "Content-Type": "application/json"}
        )
        assert (answer.status_code, code_of(answer)) == (400, "bad_request")
    browser.close()
    other.close()


def test_a_read_only_console_changes_nothing() -> None:
    settings = ConsoleSettings(bootstrap_servers=NOWHERE, port=0, read_only=True)
    with running_console(settings) as url:
        browser = Browser(url)
        assert browser.session["read_only"]
        for method, path in (
            ("POST", "/topics"),
            ("PATCH", "/topics/x"),
            ("DELETE", "/topics/x"),
            ("POST", "/topics/x/records"),
            ("POST", "/groups/g/reset/apply"),
            ("DELETE", "/groups/g"),
            ("POST", "/dead-letters/x/replay"),
        ):
            answer = browser.change(method, path, {"confirm": "x"})
            assert (answer.status_code, code_of(answer)) == (403, "read_only"), path
        browser.close()


@pytest.mark.slow
def test_no_answer_waits_longer_than_its_limit_where_no_broker_is(url) -> None:
    browser = Browser(url)
    for path in ("/overview", "/topics/x/messages"):
        began_s = time.monotonic()
        answer = browser.ask(path)
        assert answer.status_code in (502, 504), answer.text
        assert "127.0.0.1:1" in answer.text
        assert time.monotonic() - began_s < 30
    assert browser.get("/queries")["rows"] == []
    browser.close()
