"""A registry in a thread of the test, and requests to it."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx

from headrace_registry.registry_settings import RegistrySettings
from headrace_registry.server import RegistryServer
from storage_engine.client.security.security_rows import Given

TIMEOUT_S = 60
START_S = 60

INT, LONG, STRING = '"int"', '"long"', '"string"'


class Client:
    """One user."""

    def __init__(self, url: str, log_in: tuple[str, str] | None = None, **more: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=TIMEOUT_S, auth=log_in, **more)

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> httpx.Response:
        return self.http.request(method, path, json=body, params=params)

    def get(self, path: str, **params: Any) -> Any:
        return _document(self.ask("GET", path, **params))

    def post(self, path: str, body: Any, **params: Any) -> Any:
        return _document(self.ask("POST", path, body, **params))

    def put(self, path: str, body: Any, **params: Any) -> Any:
        return _document(self.ask("PUT", path, body, **params))

    def delete(self, path: str, **params: Any) -> Any:
        return _document(self.ask("DELETE", path, **params))

    def register(self, subject: str, text: str, **more: Any) -> int:
        found = self.post(f"/subjects/{quoted(subject)}/versions", {"schema": text, **more})
        return int(found["id"])

    def refused(self, method: str, path: str, body: Any = None, **params: Any) -> tuple[int, int]:
        """The HTTP status and Confluent's code of a refusal, which has one line."""
        answer = self.ask(method, path, body, **params)
        document = answer.json()
        assert set(document) == {"error_code", "message"}, document
        assert "\n" not in document["message"]
        return answer.status_code, document["error_code"]

    def close(self) -> None:
        self.http.close()


def _document(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def quoted(subject: str) -> str:
    return quote(subject, safe="")


def record(name: str, *fields: str) -> str:
    """The text of a record with fields that have no default."""
    rows = [{"name": field, "type": "int"} for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": rows}, separators=(",", ":"))


@contextlib.contextmanager
def running_registry(
    settings: RegistrySettings, producer_security: Given | None = None
) -> Iterator[str]:
    """Its address; it has ended after the block."""
    ready = threading.Event()
    server = RegistryServer(settings, producer_security or {}, on_ready=lambda url: ready.set())
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(START_S)
        if failures:
            raise failures[0]
        yield server.url
    finally:
        server.stop()
        thread.join()
