"""HTTP requests to a schema registry with Confluent's REST interface, at one URL or several.

Rule: whoever asks gets an answer, or one error within `patience_ms`. An instance that does not
answer, or answers 429 or 5xx, is left for the next one; when none answers, the registry is away:
that is one line in the log, and the request is tried again until the time is over. Answers are
bounded in size, and redirects, which would carry the password elsewhere, are not followed.
"""

import base64
import http.client
import json
import logging
import ssl
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from storage_engine.client.retry import pause_ms
from storage_engine.client.security.client_security import ClientTls
from storage_engine.client.security.tls_context import tls_context
from storage_engine.core.errors import ConfigError, DeadlineExceededError, HeadraceError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.net.deadline import Deadline, sleep_ms

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 << 20
"""A schema of 5 MB, as text within JSON, is below this."""

MAX_URLS = 16

DEFAULT_REQUEST_TIMEOUT_MS = 10_000
DEFAULT_PATIENCE_MS = 60_000

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_CONTENT_TYPE}, application/json"
_TOO_MANY = 429
_REFUSED = (401, 403)

JsonAnswer: TypeAlias = "bool | int | float | str | list[JsonAnswer] | dict[str, JsonAnswer] | None"


class SchemaRegistryError(HeadraceError):
    """A registry's final answer: it refuses, or what it says can't be used."""

    def __init__(self, message: str, *, status: int = 0, code: int = 0) -> None:
        """`status` is that of HTTP, `code` the registry's own, such as 40403; 0: none."""
        super().__init__(message)
        self.status = status
        self.code = code


class _AwayError(Exception):
    """An instance gives no answer now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """Where a registry is, and how it is asked. It can be compared, hashed and pickled."""

    urls: tuple[str, ...]
    """Without user and password; a path in front of the interface's own is kept."""

    user_info: Secret | None = None
    """`user:password` for HTTP Basic."""

    tls: ClientTls = field(default_factory=ClientTls)
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS
    patience_ms: int = DEFAULT_PATIENCE_MS
    """How long a request is tried in all while no instance answers."""

    def __str__(self) -> str:
        return ", ".join(self.urls)


def with_log_in(given: str | None, from_url: Secret | None) -> Secret | None:
    """The `user:password` of the settings, or else that of the URLs. ConfigError."""
    found = from_url if given is None else Secret(given)
    if found is not None and ":" not in found.reveal():
        raise ConfigError("it must be user:password")
    return found


def parse_registry_urls(text: str) -> tuple[tuple[str, ...], Secret | None]:
    """The URLs of `schema.registry.url`, and the `user:password` that stands in them, if any does.
    ConfigError says what is wrong, without the password."""
    urls: list[str] = []
    found: Secret | None = None
    for given in filter(None, (each.strip() for each in text.split(","))):
        try:
            parts = urlsplit(given)
            port = f":{parts.port}" if parts.port is not None else ""
        except ValueError:
            raise ConfigError("it has a URL that can't be read; give http://host:port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("it must be http://host:port or https://host:port, or several")
        if parts.query or parts.fragment:
            raise ConfigError("a URL of a registry has neither ? nor #")
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            if found is not None and found.reveal() != pair:
                raise ConfigError("its URLs have different users; name one")
            found = Secret(pair)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        urls.append(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}")
    if not urls or len(urls) > MAX_URLS:
        raise ConfigError(f"it must be one URL to {MAX_URLS}, separated by commas")
    return tuple(dict.fromkeys(urls)), found


class RegistryHttp:
    """Asks the instances of one registry. Not thread-safe, like a `Cluster`."""

    def __init__(self, address: RegistryAddress) -> None:
        """ConfigError where the files of TLS can't be used."""
        self.address = address
        uses_tls = any(url.startswith("https:") for url in address.urls)
        context = tls_context(address.tls) if uses_tls else None
        self._instances = [_Instance(url, address, context) for url in address.urls]
        self._is_away = False

    def ask(self, method: str, path: str, body: JsonAnswer = None) -> JsonAnswer:
        """The answer to a request. SchemaRegistryError for a final refusal,
        DeadlineExceededError where no instance has answered within `patience_ms`."""
        content = None if body is None else json.dumps(body).encode()
        deadline = Deadline.after(self.address.patience_ms)
        attempt = 0
        while True:
            try:
                answer = self._ask_each(method, path, content, deadline)
            except _AwayError as error:
                self._note_away(error)
                pause = pause_ms(attempt)
                attempt += 1
                if deadline.left_ms <= pause:
                    raise DeadlineExceededError(
                        f"the schema registry at {self.address} gave no answer for "
                        f"{deadline.timeout_ms / 1000:g} s: {error}; start it, or correct "
                        "its URL"
                    ) from None
                sleep_ms(pause)
                continue
            if self._is_away:
                self._is_away = False
                logger.warning("the schema registry at %s answers again", self.address)
            return answer

    def ask_every_instance(self, path: str) -> JsonAnswer:
        """As `ask`, for what one instance may know a moment before another: a 404 counts when all
        have answered so."""
        for _ in self._instances[1:]:
            try:
                return self.ask("GET", path)
            except SchemaRegistryError as error:
                if error.status != http.client.NOT_FOUND:
                    raise
                self._instances.append(self._instances.pop(0))
        return self.ask("GET", path)

    def _ask_each(
        self, method: str, path: str, content: bytes | None, deadline: Deadline
    ) -> JsonAnswer:
        """One round over the instances, of which the first is the one that answered last."""
        reasons: list[str] = []
        for instance in tuple(self._instances):
            limit = deadline.no_later_than(self.address.request_timeout_ms)
            if not limit.left_ms and reasons:
                break
            try:
                answer = instance.ask(method, path, content, max(1, limit.left_ms) / 1000)
            except _AwayError as error:
                reasons.append(str(error))
                continue
            self._instances.remove(instance)
            self._instances.insert(0, instance)
            return answer
        raise _AwayError("; ".join(dict.fromkeys(reasons)))

    def _note_away(self, error: _AwayError) -> None:
        if self._is_away:
            return
        self._is_away = True
        logger.warning(
            "the schema registry at %s does not answer (%s): trying for %g s",
            self.address,
            error,
            self.address.patience_ms / 1000,
        )

    def close(self) -> None:
        """Closes the connections; a later request opens new ones."""
        for instance in self._instances:
            instance.close()


class _Instance:
    """One URL, with its connection, which stays open between requests."""

    def __init__(self, url: str, address: RegistryAddress, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._parts: SplitResult = urlsplit(url)
        self._context = context if self._parts.scheme == "https" else None
        self._headers = {"Accept": _ACCEPT, "User-Agent": "headrace"}
        if address.user_info is not None:
            pair = base64.b64encode(address.user_info.reveal().encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, content: bytes | None, timeout_s: float) -> JsonAnswer:
        headers = dict(self._headers)
        if content is not None:
            headers["Content-Type"] = _CONTENT_TYPE
        kept = self._connection is not None
        try:
            status, data = self._exchange(method, path, content, headers, timeout_s)
        except (ConnectionError, http.client.HTTPException) as error:
            if not kept:
                raise _AwayError(f"{self._url}: {_reason(error)}") from None
            # The instance has closed the connection since the last request.
            return self.ask(method, path, content, timeout_s)
        except ssl.SSLCertVerificationError as error:
            # It will not be another one in a minute.
            raise SchemaRegistryError(
                f"the schema registry at {self._url}: its certificate is not trusted "
                f"({error.verify_message}); set ssl.ca.location"
            ) from None
        except (OSError, ValueError) as error:
            raise _AwayError(f"{self._url}: {_reason(error)}") from None
        if status >= http.client.INTERNAL_SERVER_ERROR or status == _TOO_MANY:
            raise _AwayError(f"{self._url}: HTTP {status}{_told(data)}")
        if status in _REFUSED:
            raise SchemaRegistryError(
                f"the schema registry at {self._url} refuses the user (HTTP {status}"
                f"{_told(data)}): check basic.auth.user.info and the user's rights",
                status=status,
            )
        if status != http.client.OK:
            raise _refusal(self._url, status, data)
        try:
            answer: JsonAnswer = json.loads(data)
        except (ValueError, RecursionError):
            raise SchemaRegistryError(
                f"{self._url}{path} answers with something that is not JSON: it is no schema "
                "registry; correct its URL"
            ) from None
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
    ) -> tuple[int, bytes]:
        connection = self._connection
        self._connection = None
        if connection is None:
            connection = self._opened()
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        try:
            connection.request(method, f"{self._parts.path}{path}", content, headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES + 1)
        except BaseException:
            connection.close()
            raise
        if len(data) > MAX_ANSWER_BYTES:
            connection.close()
            raise SchemaRegistryError(
                f"{self._url}{path} answers with more than {MAX_ANSWER_BYTES >> 20} MiB, which no "
                "schema has: correct its URL"
            )
        if answer.will_close:
            connection.close()
        else:
            self._connection = connection
        return answer.status, data

    def _opened(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._context is not None:
            return http.client.HTTPSConnection(host, self._parts.port, context=self._context)
        return http.client.HTTPConnection(host, self._parts.port)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _refusal(url: str, status: int, data: bytes) -> SchemaRegistryError:
    code, told = 0, _told(data)
    try:
        answer = json.loads(data)
        code = int(answer["error_code"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return SchemaRegistryError(
        f"the schema registry at {url}: HTTP {status}{told}", status=status, code=code
    )


def _told(data: bytes) -> str:
    """The registry's words, in one line of bounded length."""
    try:
        answer = json.loads(data)
        message = answer["message"]
        code = answer.get("error_code", "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    line = " ".join(str(message).split())[:500]
    return f", {code}: {line}" if code else f": {line}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


def quoted_path(*parts: str | int) -> str:
    """The parts of a path, percent-encoded, also their slashes."""
    from urllib.parse import quote

    return "".join(f"/{quote(str(part), safe='')}" for part in parts)
