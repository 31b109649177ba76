"""Changes of topics that are refused before the cluster is asked."""

import pytest

from headrace_console.tests.console_support import Browser, code_of


@pytest.mark.parametrize(
    ("method", "path", "body", "complaint"),
    [
        ("POST", "/topics", {}, "'name' is missing"),
        ("POST", "/topics", {"name": "t", "partitions": 0}, "from 1 to 10000"),
        ("POST", "/topics", {"name": "t", "settings": {"a": None}}, "leave it out for the default"),
        ("POST", "/topics", {"name": "t", "key": ["id"]}, "give the schema, too"),
        ("PATCH", "/topics/t", {"confirm": "u", "partitions": 2}, "'t', typed again"),
        ("PATCH", "/topics/t", {"confirm": "t"}, "no change is given"),
        ("DELETE", "/topics/t", {"confirm": "T"}, "'t', typed again"),
        ("POST", "/topics/t/records", {"key": {}}, "either 'text' or 'base64'"),
    ],
)
def test_a_wrong_change_is_named_with_its_field(url, method, path, body, complaint):
    browser = Browser(url)
    answer = browser.change(method, path, body)
    assert (answer.status_code, code_of(answer)) == (400, "bad_request")
    assert complaint in answer.json()["error"]["message"]
    browser.close()
