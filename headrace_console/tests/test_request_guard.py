"""What a page of another site can't do: the console without any cluster behind it."""

import time
from collections.abc import Iterator

import httpx
import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.sessions import FAILURES_PER_USER
from headrace_console.tests.console_support import Browser, running_console
from storage_engine.core.security.security_protocol import Secret

NOWHERE = "127.0.0.1:1"
PASSWORD = "a long enough password"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as address:
        yield address


def code_of(answer: httpx.Response) -> str:
    return answer.json()["error"]["code"]


def test_every_answer_has_the_headers_that_keep_pages_and_frames_out(url) -> None:
    for path, caching in (("", "no-cache"), ("api/v1/session", "no-store"), ("x", "no-cache")):
        headers = httpx.get(url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == caching
        assert "server" not in headers


def test_another_name_of_this_machine_is_refused(url) -> None:
    for path in ("", "api/v1/session", "static/index.html"):
        for host in ("evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1"):
            answer = httpx.get(url + path, headers={"Host": host})
            assert (answer.status_code, code_of(answer)) == (403, "foreign_host"), (path, host)
    assert httpx.get(url.replace("127.0.0.1", "localhost")).status_code == 200


def test_pages_of_other_origins_get_and_change_nothing(url) -> None:
    address = url + "api/v1/session"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = httpx.get(address, headers=headers)
        assert (answer.status_code, code_of(answer)) == (403, "foreign_origin"), headers
        assert "access-control-allow-origin" not in answer.headers
    assert httpx.get(address, headers={"Origin": url.rstrip("/")}).status_code == 200


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


def test_the_cookie_is_for_this_site_and_no_script(url) -> None:
    cookie = httpx.get(url + "api/v1/session").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie


def test_a_body_that_is_too_large_is_refused_before_it_is_held(url) -> None:
    browser = Browser(url)
    answer = browser.change("POST", "/topics", {"name": "x" * (5 << 20)})
    assert (answer.status_code, code_of(answer)) == (413, "too_large")
    browser.close()


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


def test_progress_is_taken_from_programs_with_the_token_and_from_nobody_else() -> None:
    token = Secret("the token of the queries")
    settings = ConsoleSettings(bootstrap_servers=NOWHERE, port=0, progress_token=token)
    body = {"format": 1, "events": [{"kind": "idle"}]}
    right = {"X-Headrace-Progress": "1", "Authorization": f"Bearer {token.reveal()}"}
    with running_console(settings) as url:
        address = url + "api/v1/queries/progress"

        def post(headers: dict, body: object = body) -> tuple[int, str]:
            answer = httpx.post(address, json=body, headers=headers)
            return answer.status_code, code_of(answer)

        assert post({"Authorization": right["Authorization"]}) == (403, "csrf")
        assert post({"X-Headrace-Progress": "1"}) == (401, "log_in")
        assert post({**right, "Authorization": "Bearer x"}) == (401, "log_in")
        assert post({**right, "Origin": url.rstrip("/")}) == (403, "foreign_origin")
        assert post(right) == (400, "bad_request")
        assert post(right, {"format": 1, "events": ["x" * (257 << 10)]}) == (413, "too_large")


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


def test_files_beside_the_pages_are_not_served(url) -> None:
    for path in (
        "static/../server.py",
        "static/%2e%2e/server.py",
        "static/..%2fserver.py",
        "static/",
    ):
        assert httpx.get(f"{url}static/{path}").status_code == 404, path
