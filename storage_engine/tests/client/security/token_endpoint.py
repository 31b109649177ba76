"""A small server of HTTP that plays the token endpoint of an identity provider."""

import contextlib
import http.server
import json
import threading
from typing import Any


class Endpoint:
    """Answers with what `answer` is; remembers what it was asked."""

    def __init__(self, context=None):
        self.asked: list[tuple[str, str]] = []
        self.answer: tuple[int, Any] = (200, {"access_token": "first", "expires_in": 3600})
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.headers["Authorization"], form))
                status, body = endpoint.answer
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{endpoint.port}/elsewhere")
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def do_GET(self):
                endpoint.asked.append(("GET", self.path))
                self.send_response(500)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port


@contextlib.contextmanager
def running(endpoint):
    thread = threading.Thread(target=endpoint.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.server.shutdown()
        endpoint.server.server_close()
        thread.join()
