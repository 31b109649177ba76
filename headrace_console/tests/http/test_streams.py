"""The places of streamed searches."""

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.streams import MOST_STREAMS_EACH
from headrace_console.tests.console_support import NOWHERE, Browser, running_console


@pytest.mark.usefixtures("no_thread_is_left")
def test_wrong_searches_do_not_use_up_the_searches_of_a_session() -> None:
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as url:
        browser = Browser(url)
        for wrong in ({"tail": "2"}, {"limit": "0"}):
            for _ in range(MOST_STREAMS_EACH + 1):
                answer = browser.ask("/topics/t/messages/stream", **wrong)
                assert "too_many" not in answer.text, wrong
        browser.close()
