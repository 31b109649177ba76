"""By which names a console may be addressed, and what a page learns of it."""

from typing import Any

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.server_state import ServerState, allowed_hosts
from headrace_console.problem import ConsoleError
from headrace_console.screens.timeline import LoggedChange
from headrace_console.tests.console_support import NOWHERE
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.security_protocol import Secret


def settings(**given):
    return ConsoleSettings(bootstrap_servers=NOWHERE, **given)


@pytest.mark.parametrize(
    ("address", "port", "expected"),
    [
        ("127.0.0.1", 8480, {"127.0.0.1:8480", "localhost:8480", "[::1]:8480", "proxy"}),
        ("10.0.0.1", 80, {"10.0.0.1", "10.0.0.1:80", "proxy"}),
        ("fe80::1", 81, {"[fe80::1]:81", "proxy"}),
    ],
)
def test_a_browser_names_the_address_with_the_port_unless_it_is_the_usual_one(
    address, port, expected
):
    assert allowed_hosts(settings(address=address, allowed_hosts=("proxy",)), port) == expected


def test_the_password_of_the_console_lets_in_and_another_does_not():
    state = ServerState(settings(password=Secret("a long enough password")), 8480)
    assert state.anonymous_session() is None
    with pytest.raises(ConsoleError, match="log in: there is no session"):
        state.principal_of(None)
    with pytest.raises(ConsoleError, match="the password is wrong"):
        state.check_log_in("", "a long enough passwor\ud800")
    session = state.sessions.begin(state.check_log_in("", "a long enough password"))
    assert state.session_document(session)["csrf"] == session.csrf
    assert state.session_document(None)["csrf"] is None
    hidden: Any = state.cluster_document(None)
    assert hidden["cluster"]["name"] is None
    state.close()


def test_lines_of_logs_become_events_once():
    changes = [LoggedChange(1, 2, TopicPartition("t", 0), "became leader partition=t-0")]
    state = ServerState(settings(), 8480, state_changes=lambda: changes)
    events = state.logged_events()
    assert [event.kind for event in events] == ["leader"]
    assert state.logged_events() is events
    changes = [*changes, *changes]
    assert len(state.logged_events()) == 2
    state.close()
    assert ServerState(settings(), 8480).logged_events() is None
