"""Log-ins by HTTP Basic with the cluster's own users: a broker checks name and password.

A log-in that was right is remembered, with its connections, for a minute from its check; passwords
only as digests with a salt of this process. Failed ones are limited as the console's are.
"""

import base64
import binascii
import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from headrace_console.cluster.upstream import Upstream
from headrace_console.http.sessions import LogInLimit
from headrace_console.problem import ConsoleError
from headrace_registry.access.rights import LoggedInUser
from headrace_registry.registry_settings import RegistrySettings
from storage_engine.client.security.client_security import ClientSasl
from storage_engine.core.errors import AuthenticationError, HeadraceError
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.core.security.security_protocol import Secret

CHECKED_FOR_S = 60.0
"""A password that was changed is refused after that."""
MOST_PRINCIPALS = 200
"""Beyond it, the one that was silent longest is forgotten: each has connections."""
_LONGEST = 1_000


class _LogIn(NamedTuple):
    principal: LoggedInUser
    checked_s: float


class Principals:
    """For any number of threads."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._salt = secrets.token_bytes(32)
        self._limit = LogInLimit()
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bytes], _LogIn] = OrderedDict()

    @property
    def are_needed(self) -> bool:
        """Whether users log in."""
        return self._settings.mechanism is not None

    def viewer(self, authorization: str | None, address: str) -> LoggedInUser:
        """The one who asks. RegistryError 401 for a wrong log-in, 429 after too many. Blocks."""
        user, password = _basic(authorization)
        key = user, hashlib.sha256(self._salt + password.encode()).digest()
        now_s = time.monotonic()
        with self._lock:
            found = self._known.get(key)
            if found is not None and now_s - found.checked_s < CHECKED_FOR_S:
                self._known.move_to_end(key)
                return found.principal
            try:
                self._limit.check(address, user)
            except ConsoleError as error:
                raise RegistryError(429, str(error)) from None
            self._limit.failed(address, user)
        try:
            principal = self._logged_in(user, password)
        except RegistryError:
            raise
        except HeadraceError:
            # The cluster did not answer; that says nothing about the password.
            with self._lock:
                self._limit.succeeded(address, user)
            raise
        with self._lock:
            self._limit.succeeded(address, user)
            closed = [self._known.pop(key)] if key in self._known else []
            for other, log_in in list(self._known.items()):
                if now_s - log_in.checked_s > CHECKED_FOR_S:
                    closed.append(self._known.pop(other))
            self._known[key] = _LogIn(principal, now_s)
            while len(self._known) > MOST_PRINCIPALS:
                closed.append(self._known.popitem(last=False)[1])
        for old in closed:
            old.principal.close()
        return principal

    def _logged_in(self, user: str, password: str) -> LoggedInUser:
        security = self._settings.security
        assert security is not None and security.sasl is not None
        sasl = ClientSasl(
            mechanism=security.sasl.mechanism, username=user, password=Secret(password)
        )
        upstream = Upstream(
            self._settings.bootstrap_servers, replace(security, sasl=sasl), user=user
        )
        try:
            upstream.call(lambda cluster: cluster.refresh([]))
        except AuthenticationError:
            upstream.close()
            raise _unauthorized("the user or the password is wrong") from None
        except BaseException:
            upstream.close()
            raise
        return LoggedInUser(upstream)

    def close(self) -> None:
        with self._lock:
            for each in self._known.values():
                each.principal.close()
            self._known.clear()


def _basic(authorization: str | None) -> tuple[str, str]:
    """The name and password in a header. RegistryError 401 where there are none."""
    kind, _, rest = (authorization or "").partition(" ")
    if kind.lower() != "basic" or len(rest) > _LONGEST:
        raise _unauthorized("log in with HTTP Basic, with your user and password of the cluster")
    try:
        text = base64.b64decode(rest.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise _unauthorized("the log-in is no base64 of USER:PASSWORD in UTF-8") from None
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise _unauthorized("the log-in is not USER:PASSWORD")
    return user, password


def _unauthorized(text: str) -> RegistryError:
    return RegistryError(401, text)
