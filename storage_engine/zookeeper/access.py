"""A broker's credentials for ZooKeeper, and the ACLs of the nodes that it creates.

The password is in a file of its own, never in a setting, which DescribeConfigs would show.

With credentials the broker authenticates by ZooKeeper's digest scheme. With `zookeeper.set.acl` the
nodes it creates can be written by its user alone and read by anyone, as Kafka's can: a stranger's
write could damage the cluster. What users log in with can be read by the brokers alone. The cluster
stores nothing below /consumers, where everybody may write.
Existing nodes keep their ACLs, the root of ZooKeeper among them: a user who may write there may
remove /controller, so only a chroot in zookeeper.connect is safe.

ACLs keep nobody from closing others' sessions (see `session_credentials`): for that ZooKeeper must
not be reached, or only with a certificate.
"""

import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import (
    ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Permissions,
    make_digest_acl,
    make_digest_acl_credential,
)

from storage_engine.core.errors import ConfigError, HeadraceError

CREDENTIALS_KEY = "zookeeper.digest.credentials.file"
_OF_EVERYBODY = "/consumers"
"""The path that consumer groups in ZooKeeper write to: their members have no credentials."""
_SECRET = "/config/users"
"""Credentials of users: with what stands there a password can be guessed as fast as hashes go."""


class ZooKeeperRefusedError(HeadraceError):
    """A broker or consumer may not write where it has to."""


class Written(NamedTuple):
    """The places where a client creates nodes; the first of `paths` that exists shows whether it
    may."""

    paths: Sequence[str]
    remedy: str


BY_BROKERS = Written(
    ("/brokers/ids", "/brokers", "/"), "are the user and password those of the other brokers?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """The credentials and ACLs of a client. Invariant: `set_acl` only with a user."""

    user: str = ""
    """The user's name; empty without credentials."""
    password: str = field(default="", repr=False)
    set_acl: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """How connections are encrypted; None: not at all."""

    def client_options(self) -> dict[str, Any]:
        """Return the options of a KazooClient."""
        options: dict[str, Any] = {}
        if self.user:
            options["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        if self.set_acl:
            own = make_digest_acl(self.user, self.password, all=True)
            options["default_acl"] = [own, *READ_ACL_UNSAFE]
        return options

    def acl_of(self, path: str) -> list[ACL] | None:
        """Return the ACL of a node that is to be created; None for the default ACL of this
        client."""
        if path == _OF_EVERYBODY:
            return list(OPEN_ACL_UNSAFE)
        if self.set_acl and (path == _SECRET or path.startswith(f"{_SECRET}/")):
            return [make_digest_acl(self.user, self.password, all=True)]
        return None

    def check(self, client: KazooClient, written: Written = BY_BROKERS) -> None:
        """Raise ZooKeeperRefusedError when nodes could not be created with this access."""
        for path in written.paths:
            try:
                found = client.get_acls(path)
            except KazooException:
                continue  # not there, or not ours to look at: the next operation tells
            if not any(self._may_create(acl) for acl in found[0]):
                who = f"user '{self.user}'" if self.user else f"one without {CREDENTIALS_KEY}"
                raise ZooKeeperRefusedError(
                    f"ZooKeeper lets {who} not write {path}: {written.remedy}"
                )
            return

    def _may_create(self, acl: ACL) -> bool:
        if not acl.perms & Permissions.CREATE:
            return False
        if acl.id.scheme == "digest":
            return bool(self.user) and acl.id.id == make_digest_acl_credential(
                self.user, self.password
            )
        # Names of other schemes (ip, sasl, x509) are known to the server only.
        return True


ANYBODY = ZooKeeperAccess()


def load_access(
    credentials_file: Path | None, *, set_acl: bool, tls: ssl.SSLContext | None = None
) -> ZooKeeperAccess:
    """Load a file of one line, `user:password`; ConfigError when it is none, or others may read
    it."""
    if credentials_file is None:
        if set_acl:
            raise ConfigError(
                f"zookeeper.set.acl=true needs {CREDENTIALS_KEY}: the user that owns the znodes"
            )
        return ANYBODY if tls is None else ZooKeeperAccess(tls=tls)
    try:
        mode = credentials_file.stat().st_mode
        text = credentials_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"{CREDENTIALS_KEY}={credentials_file} can't be read: {reason}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{CREDENTIALS_KEY}={credentials_file} can be read by others: chmod 600 it"
        )
    lines = text.splitlines()
    user, colon, password = lines[0].strip().partition(":") if len(lines) == 1 else ("", "", "")
    if not (user and colon and password):
        raise ConfigError(f"{CREDENTIALS_KEY}={credentials_file} must have one line, user:password")
    return ZooKeeperAccess(user=user, password=password, set_acl=set_acl, tls=tls)
