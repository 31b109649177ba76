"""The users that log in by PLAIN: from a file, or from `sasl.jaas.config` of the listener.

A file has a line `user=password` for each, in the syntax of server.properties, and is readable by
its owner alone. It is read again when it has changed, at the next log-in. Kept in memory is a
digest of each password, not the password. Source: KIP-43.
"""

import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.properties import parse_properties

log = logging.getLogger(__name__)


FILE_BYTES_MAX = 1 << 20
"""The largest file, some ten thousand users; the loop reads a changed one in milliseconds."""


class PlainUsers:
    """A set of users and their passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._nobody = self._digest("")
        self._digests: dict[str, bytes] = {}
        self.replace(passwords)

    def replace(self, passwords: Mapping[str, str]) -> None:
        """Replace all users by these."""
        self._digests = {user: self._digest(text) for user, text in passwords.items()}

    def is_password_of(self, user: str, password: str) -> bool:
        """Takes the same time for unknown users and for each password."""
        known = self._digests.get(user)
        is_equal = hmac.compare_digest(known or self._nobody, self._digest(password))
        return is_equal and known is not None

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, hashlib.sha256(password.encode()).digest(), "sha256")


class PlainUsersFile:
    """The users in a file. While the file can't be read, the users read last stay."""

    def __init__(self, path: Path, *, key: str) -> None:
        """`key`: the setting that names the file, for errors. ConfigError when it can't be read."""
        self._path = path
        self._key = key
        passwords, self._version = _read(path, key)
        self._users = PlainUsers(passwords)
        self._is_broken = False

    def is_password_of(self, user: str, password: str) -> bool:
        self._read_if_changed()
        return self._users.is_password_of(user, password)

    def _read_if_changed(self) -> None:
        try:
            if _version(self._path.stat()) == self._version:
                return
            passwords, self._version = _read(self._path, self._key)
        except (OSError, ConfigError) as failure:
            if not self._is_broken:
                log.error("users of PLAIN stay as they were: %s", failure)
            self._is_broken = True
            return
        self._is_broken = False
        self._users.replace(passwords)
        log.info("users of PLAIN read from %s: %d", self._path, len(passwords))


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path, key: str) -> tuple[dict[str, str], tuple[int, int, int]]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ConfigError(f"{key}={path} can't be read: {reason}") from None
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{key}={path} can be read by others: chmod 600 it")
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{key}={path} has more than {FILE_BYTES_MAX} bytes")
    passwords = parse_properties(text, source=f"{key}={path}")
    for user, password in passwords.items():
        if not user or not password:
            raise ConfigError(f"{key}={path}: each line must be user=password, neither of it empty")
    return passwords, _version(found)
