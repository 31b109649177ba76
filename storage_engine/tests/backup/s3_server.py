"""An object store that speaks S3's protocol, moto's, in this process."""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class Guard:
    """Stands in front of the store."""

    def __init__(self, app) -> None:
        self._app = app
        self.refuses = False

    def __call__(self, environ, start_response):
        if self.refuses:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            start_response("403 Forbidden", [("Content-Length", str(len(body)))])
            return [body]
        return self._app(environ, start_response)


@contextmanager
def s3_server(bucket: str) -> Iterator[tuple[str, Guard]]:
    guard = Guard(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, guard, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/{bucket}", method="PUT")).close()
        yield url, guard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def options_of(url: str) -> dict[str, str]:
    return {
        "aws_endpoint": url,
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
