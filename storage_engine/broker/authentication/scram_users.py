"""The users that log in by SCRAM, as far as this broker has read them from ZooKeeper.

They stand in the settings of users, so the notifications of changed settings bring them. Source:
KIP-84.

The users that log in by PLAIN: from a file, or from `sasl.jaas.config` of the listener.

A file has a line `user=password` for each, in the syntax of server.properties, and is readable by
its owner alone. It is read again when it has changed, at the next log-in. Kept in memory is a
digest of each password, not the password. Source: KIP-43.

Agrees with the other brokers on the key from which the salts of unknown SCRAM users are made.
"""

import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Scheduler
from storage_engine.core.printable import printable
from storage_engine.core.security.sasl_server import FoundCredential, ScramDecoys
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramCredentialError,
    ScramMechanism,
)
from storage_engine.core.settings.properties import parse_properties
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ScramDecoyZNode

log = logging.getLogger(__name__)


_USUAL_SALT_BYTES = 26
"""What Kafka's tools make."""


class ScramUsers:
    """Credentials by mechanism and user."""

    def __init__(self, decoys: ScramDecoys) -> None:
        """`decoys` answer in the name of users that do not exist."""
        self._decoys = decoys
        self._credentials: dict[ScramMechanism, dict[str, ScramCredential]] = {
            mechanism: {} for mechanism in ScramMechanism
        }
        self._forms: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }
        """Iterations and length of salt -> how many users have such ones."""

    def use_decoys(self, decoys: ScramDecoys) -> None:
        """From now on these answer, which are the same on all brokers."""
        self._decoys = decoys

    def __iter__(self) -> Iterator[str]:
        """All users, once each."""
        return iter({user for users in self._credentials.values() for user in users})

    def update(self, user: str, settings: Mapping[str, str]) -> None:
        """Takes the settings that the user has now; none when it is gone."""
        for mechanism, users in self._credentials.items():
            before = users.pop(user, None)
            if before is not None:
                self._forms[mechanism][_form(before)] -= 1
            text = settings.get(mechanism.value)
            if text is None:
                continue
            try:
                credential = ScramCredential.parse(mechanism, text)
            except ScramCredentialError as failure:
                log.error(
                    "the %s credential of user '%s' is ignored: %s; make it anew",
                    mechanism.value,
                    printable(user),
                    failure,
                )
                continue
            users[user] = credential
            self._forms[mechanism][_form(credential)] += 1

    def find(self, mechanism: ScramMechanism, user: str) -> FoundCredential:
        """The credential of the user, or a decoy that looks like those of most users."""
        (iterations, salt_bytes), count = max(
            self._forms[mechanism].items(), key=lambda item: item[1], default=(_USUAL, 0)
        )
        if not count:
            iterations, salt_bytes = _USUAL
        # Also for users that there are, so that it takes as long.
        decoy = self._decoys.credential(
            mechanism, user, iterations=iterations, salt_bytes=salt_bytes
        )
        found = self._credentials[mechanism].get(user)
        return FoundCredential(found or decoy, found is not None)


_USUAL = ITERATIONS_MIN, _USUAL_SALT_BYTES


def _form(credential: ScramCredential) -> tuple[int, int]:
    return credential.iterations, len(credential.salt)


FILE_BYTES_MAX = 1 << 20
"""Some ten thousand users; reading it takes the loop some milliseconds when it has changed."""


class PlainUsers:
    """Users that do not change."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._nobody = self._digest("")
        self._digests: dict[str, bytes] = {}
        self.replace(passwords)

    def replace(self, passwords: Mapping[str, str]) -> None:
        """From now on there are these users."""
        self._digests = {user: self._digest(text) for user, text in passwords.items()}

    def is_password_of(self, user: str, password: str) -> bool:
        """Takes as long for a user that does not exist, and for each password."""
        known = self._digests.get(user)
        is_equal = hmac.compare_digest(known or self._nobody, self._digest(password))
        return is_equal and known is not None

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, hashlib.sha256(password.encode()).digest(), "sha256")


class PlainUsersFile:
    """Users of a file. A file that can't be read any more leaves those that were there."""

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


RETRY_MS = 500


def agree_on_decoy_key(zookeeper: ZookeeperFlows, scheduler: Scheduler) -> Flow[bytes]:
    """Reads the key, or creates it; waits for ZooKeeper for as long as it takes."""
    while True:
        found = yield from zookeeper.get(ScramDecoyZNode.PATH)
        if found.ok:
            try:
                return ScramDecoyZNode.decode(found.data).key
            except ZnodeFormatError as failure:
                log.error("%s; it is made anew", failure)
                assert found.stat is not None
                yield from zookeeper.delete(ScramDecoyZNode.PATH, found.stat.version)
        elif found.is_absent:
            yield from zookeeper.create(ScramDecoyZNode.PATH, ScramDecoyZNode.random().encode())
        else:
            yield from pause(scheduler, RETRY_MS)
