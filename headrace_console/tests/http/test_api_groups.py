"""A change of a group is applied only as it was shown, and to the group that was named again."""

import pytest

from headrace_console.tests.console_support import Browser, code_of


@pytest.fixture
def browser(url):
    browser = Browser(url)
    yield browser
    browser.close()


@pytest.mark.parametrize(
    ("path", "name"), [("/groups/g/reset/apply", "g"), ("/dead-letters/t/replay", "t")]
)
def test_nothing_is_applied_that_was_not_shown_before(browser, path, name):
    answer = browser.change("POST", path, {"confirm": name, "preview_id": "reset-other"})
    assert (answer.status_code, code_of(answer)) == (409, "conflict")
    answer = browser.change("POST", path, {"confirm": name})
    assert "'preview_id' is missing" in answer.text
    answer = browser.change("POST", path, {"confirm": "other", "preview_id": "reset-other"})
    assert (answer.status_code, code_of(answer)) == (400, "bad_request")
    assert f"'{name}', typed again" in answer.text


def test_a_group_whose_name_has_slashes_is_named_by_a_parameter(browser):
    answer = browser.ask("/groups/~")
    assert "parameter 'group' is missing; it stands for '~' in the path" in answer.text
