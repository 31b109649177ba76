"""What a page of another site can't do."""

import httpx

from headrace_console.tests.console_support import Browser, code_of


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


def test_a_body_that_is_too_large_is_refused_before_it_is_held(url) -> None:
    browser = Browser(url)
    answer = browser.change("POST", "/topics", {"name": "x" * (5 << 20)})
    assert (answer.status_code, code_of(answer)) == (413, "too_large")
    browser.close()
