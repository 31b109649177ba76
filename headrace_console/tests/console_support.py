"""A console in a thread of the test, and a browser's requests to it."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from headrace_console.cluster import watcher
from headrace_console.console_settings import ConsoleSettings
from headrace_console.server import ConsoleServer

TIMEOUT_S = 60
NOWHERE = "127.0.0.1:1"
"""An address at which no broker is."""


class Browser:
    """One session."""

    def __init__(self, url: str, **log_in: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=f"{url}api/v1", timeout=TIMEOUT_S, verify=False)
        self.session = self.client.get("/session").json()
        if log_in:
            answer = self.client.post("/login", json=log_in)
            assert answer.status_code == 200, answer.text
            self.session = answer.json()

    def ask(self, path: str, /, **params: Any) -> httpx.Response:
        return self.client.get(path, params=params)

    def get(self, path: str, /, **params: Any) -> Any:
        """The document of an answer that is no error."""
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def change(self, method: str, path: str, body: Any) -> httpx.Response:
        token = self.session["csrf"] or ""
        return self.client.request(method, path, json=body, headers={"X-CSRF-Token": token})

    def post(self, path: str, body: Any) -> Any:
        answer = self.change("POST", path, body)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def events(self, path: str, /, **params: Any) -> Iterator[tuple[str, Any]]:
        """Of a stream; the stream is left when the iterator is closed."""
        with self.client.stream("GET", path, params=params) as answer:
            kind = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self.client.close()


def code_of(answer: httpx.Response) -> str:
    """The code of an answer that is an error."""
    return str(answer.json()["error"]["code"])


@contextlib.contextmanager
def running_console(settings: ConsoleSettings, **more: Any) -> Iterator[str]:
    """Its address; it has ended after the block. No page waits long for a cluster that is not
    there: each new session would."""
    ready = threading.Event()
    server = ConsoleServer(settings, on_ready=lambda url: ready.set(), **more)
    thread = threading.Thread(target=server.run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watcher, "PAGE_WAIT_S", 0.05)
        thread.start()
        try:
            assert ready.wait(TIMEOUT_S)
            yield server.url
        finally:
            server.stop()
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def within(seconds: float, found: Callable[[], Any], what: str) -> Any:
    """What `found` returns, as soon as that is something."""
    began_s = time.monotonic()
    while True:
        thing = found()
        if thing:
            return thing
        assert time.monotonic() - began_s < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.1)
