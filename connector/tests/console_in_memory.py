"""A console that keeps what is posted to it, and may misbehave."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ConsoleInMemory:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.posts: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []
        """Answers to the next posts; 204 when there are none."""
        self.hangs = threading.Event()
        """While it is set no post is answered."""
        self.over = threading.Event()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for post in list(self.posts) for event in post["events"]]

    def kinds(self, query: str | None = None) -> list[str]:
        return [event["kind"] for event in self.events if query in (None, event["query"]["id"])]


@contextlib.contextmanager
def console_in_memory() -> Iterator[ConsoleInMemory]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            while console.hangs.is_set() and not console.over.wait(0.05):
                pass
            status = console.statuses.pop(0) if console.statuses else 204
            if status == 204:
                assert self.path == "/api/v1/queries/progress"
                console.posts.append(json.loads(body))
                console.headers.append(dict(self.headers))
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    console = ConsoleInMemory(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield console
    finally:
        console.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
