"""An object store that speaks S3's protocol, moto's, with faults in front of it."""

import contextlib
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "lake"
OPTIONS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
"""Of a client, beside AWS_ENDPOINT_URL."""

Start = Callable[..., Any]

_SLOW_S = 0.3


class FaultyStore:
    """What a server for WSGI calls; to be told of faults from any thread."""

    def __init__(self, app: Callable[..., Any], seed: int = 0) -> None:
        self._app = app
        self._random = random.Random(seed)
        self.drops_conditions = False
        self.lost_answers = 0
        """Of commits to come: they have an effect, and their answer is an error."""
        self.is_away = False
        self.is_slow = False
        self.throttled_share = 0.0
        """Of requests: they have no effect."""
        self.lost_share = 0.0
        """Of requests: they have their effect, and their answer is an error."""
        self.is_forbidden = False
        self.struck = 0
        """Requests that met a fault since the last healing."""

    def heal(self) -> None:
        self.drops_conditions = self.is_away = self.is_slow = self.is_forbidden = False
        self.throttled_share = self.lost_share = 0.0
        self.lost_answers = self.struck = 0

    def __call__(self, environ: dict[str, Any], start: Start) -> Any:
        if self.is_away:
            return self._refused(environ, start, "500 Internal Server Error")
        if self.is_forbidden:
            return self._refused(environ, start, "403 Forbidden", "InvalidAccessKeyId")
        if self._random.random() < self.throttled_share:
            return self._refused(environ, start, "503 Slow Down", "SlowDown")
        if self.is_slow:
            self.struck += 1
            time.sleep(_SLOW_S)
        if self.drops_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        is_commit = environ["REQUEST_METHOD"] == "PUT" and "_delta_log" in environ["PATH_INFO"]
        if is_commit and self.lost_answers:
            self.lost_answers -= 1
            return self._lost(environ, start)
        if self._random.random() < self.lost_share:
            return self._lost(environ, start)
        return self._app(environ, start)

    def _refused(
        self, environ: dict[str, Any], start: Start, status: str, code: str = "InternalError"
    ) -> list[bytes]:
        # What is left unread makes the kernel reset the connection, perhaps before the answer.
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return self._error(start, status, code)

    def _lost(self, environ: dict[str, Any], start: Start) -> list[bytes]:
        list(self._app(environ, lambda *_: None))
        return self._error(start, "500 Internal Server Error")

    def _error(self, start: Start, status: str, code: str = "InternalError") -> list[bytes]:
        self.struck += 1
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]


@contextlib.contextmanager
def serving(app: Callable[..., Any]) -> Iterator[str]:
    """Yield the URL at which it is served."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def faulty_store() -> Iterator[tuple[str, str, FaultyStore]]:
    """Yield the URL of a store with an empty bucket, that of the same store with faults, and
    these."""
    app = DomainDispatcherApplication(create_backend_app)
    faults = FaultyStore(app)
    with serving(app) as sound, serving(faults) as faulty:
        made = urllib.request.Request(f"{sound}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made).close()
        yield sound, faulty, faults
