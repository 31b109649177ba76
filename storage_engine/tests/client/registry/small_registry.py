"""A schema registry of a few lines: subjects, versions and ids, kept in memory, by Confluent's REST
interface. It checks no compatibility, and fails on demand.
"""

import base64
import json
import re
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class SmallRegistry:
    """Serves at `url`. `asked` has the method and path of each request."""

    def __init__(self, *, user_info=None, context=None, first_id=1):
        self.subjects = {}
        self.by_id = {}
        self.descriptors = {}
        """By id: what `format=serialized` answers of Protobuf."""
        self.rules = {}
        """By path, as `/config/t-value`: what is answered."""
        self.asked = []
        self.failures = []
        """Answers to the next requests: a status, or a function of the handler."""
        self._first_id = first_id
        self._user_info = user_info
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        scheme = "http"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://localhost:{self.port}"
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject, text, kind="AVRO", references=()):
        """The id of the schema."""
        return self._registered(subject, _content(text, kind, list(references)))

    def _registered(self, subject, content):
        with self._lock:
            versions = self.subjects.setdefault(subject, [])
            known = [each for each, other in self.by_id.items() if other == content]
            schema_id = known[0] if known else self._first_id + len(self.by_id)
            self.by_id[schema_id] = content
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def answer(self, method, path, body, query=""):
        if path in self.rules:
            return 200, self.rules[path]
        parts = [unquote(each) for each in path.strip("/").split("/")]
        found = self._list(parts) if method == "GET" else None
        if found is not None:
            return 200, found
        match method, parts:
            case "GET", ["schemas", "ids", text]:
                if int(text) not in self.by_id:
                    return 404, _error(40403)
                return 200, self._content(int(text), query)
            case "GET", ["subjects", subject, "versions", number]:
                return self._version(subject, number, query)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self._registered(subject, _given(body))}
            case "POST", ["subjects", subject]:
                versions = self.subjects.get(subject, [])
                for place, schema_id in enumerate(versions, 1):
                    if self.by_id[schema_id] == _given(body):
                        return self._version(subject, str(place))
                return 404, _error(40403)
        return 404, _error(404)

    def _list(self, parts):
        """None where no list is asked for."""
        match parts:
            case ["schemas"]:
                return [{"id": each, **content} for each, content in self.by_id.items()]
            case ["schemas", "ids", text, "versions"]:
                return [
                    {"subject": subject, "version": versions.index(int(text)) + 1}
                    for subject, versions in self.subjects.items()
                    if int(text) in versions
                ]
            case ["subjects"]:
                return list(self.subjects)
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions", number, "referencedby"]:
                place = {"subject": subject, "version": int(number)}
                return [
                    each
                    for each, content in self.by_id.items()
                    if place in map(_place, content.get("references", []))
                ]
        return None

    def _content(self, schema_id, query):
        content = self.by_id[schema_id]
        if "format=serialized" not in query:
            return content
        return content | {"schema": self.descriptors.get(schema_id, content["schema"])}

    def _version(self, subject, number, query=""):
        versions = self.subjects.get(subject)
        if not versions:
            return 404, _error(40401)
        place = len(versions) if number == "latest" else int(number)
        if not 1 <= place <= len(versions):
            return 404, _error(40402)
        schema_id = versions[place - 1]
        return 200, {"subject": subject, "version": place, "id": schema_id} | self._content(
            schema_id, query
        )

    def allows(self, header):
        if self._user_info is None:
            return True
        return header == "Basic " + base64.b64encode(self._user_info.encode()).decode()

    def _handler(registry):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path, query = urlsplit(self.path).path, urlsplit(self.path).query
                body = json.loads(
                    self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}"
                )
                registry.asked.append((self.command, self.path))
                if registry.failures:
                    failure = registry.failures.pop(0)
                    if callable(failure):
                        failure(self)
                        return
                    status, answer = failure, {"error_code": failure, "message": "as told"}
                elif not registry.allows(self.headers.get("Authorization")):
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, answer = registry.answer(self.command, path, body, query)
                self.give(status, json.dumps(answer).encode())

            do_POST = do_GET

            def give(self, status, data):
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                """Nothing."""

        return Handler


def _place(reference):
    return {name: reference[name] for name in ("subject", "version")}


def _given(body):
    return _content(body["schema"], body.get("schemaType", "AVRO"), body.get("references", []))


def _content(text, kind, references):
    content = {"schema": text}
    if kind != "AVRO":
        content["schemaType"] = kind
    if references:
        content["references"] = references
    return content


def _error(code):
    return {"error_code": code, "message": f"not found ({re.sub('0+$', '', str(code))})"}


def server_context(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def small_registry(**settings):
    registry = SmallRegistry(**settings)
    try:
        yield registry
    finally:
        registry.close()
