"""Writes SCRAM users into ZooKeeper without a broker.

Brokers that log in to each other by SCRAM need their own user before the first of them starts. With
brokers that run, ask them (AlterUserScramCredentials). Source: KIP-84.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from storage_engine.core.errors import HeadraceError
from storage_engine.core.printable import escaped
from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.kazoo_driver import EncryptingHandler
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

ITERATIONS = 8192
SALT_BYTES = 32
CONNECT_TIMEOUT_S = 10.0
_TRIES = 20


class UserNodesError(HeadraceError):
    """ZooKeeper can't be reached, or refuses."""


def credentials_of(password: str, mechanisms: Iterable[ScramMechanism]) -> dict[str, str]:
    """Return the credentials that are stored for a password, by the names of the mechanisms."""
    return {
        mechanism.value: ScramCredential.of_password(
            mechanism, password, salt=os.urandom(SALT_BYTES), iterations=ITERATIONS
        ).format()
        for mechanism in mechanisms
    }


class UserNodes:
    """The SCRAM users below /config/users."""

    def __init__(self, client: KazooClient, access: ZooKeeperAccess) -> None:
        self._client = client
        self._access = access

    @classmethod
    @contextlib.contextmanager
    def connected(cls, hosts: str, access: ZooKeeperAccess) -> Iterator["UserNodes"]:
        """Connect for a `with` block; UserNodesError has the reason of a failure."""
        handler = EncryptingHandler(access.tls)
        client = KazooClient(hosts=hosts, handler=handler, **access.client_options())
        try:
            try:
                client.start(timeout=CONNECT_TIMEOUT_S)
            except KazooTimeoutError:
                problem = handler.tls_problem or f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
                raise UserNodesError(f"no ZooKeeper at {hosts}: {problem}") from None
            yield cls(client, access)
        except KazooException as error:
            raise UserNodesError(
                f"ZooKeeper at {hosts} refused: {type(error).__name__}; check that the "
                "credentials are those of the brokers"
            ) from None
        finally:
            client.stop()
            client.close()

    def __contains__(self, user: str) -> bool:
        """Whether somebody has settings under this name."""
        return self._client.exists(_path(user)) is not None

    def set(self, user: str, credentials: Mapping[str, str]) -> None:
        """Add credentials, or replace the ones of the same mechanisms; other settings of the user
        stay."""
        path = _path(user)
        self._client.ensure_path("/config/users", acl=self._access.acl_of(path))
        for _ in range(_TRIES):
            with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError):
                self._set_once(path, credentials)
                self._tell_brokers(user)
                return
        raise UserNodesError(
            f"other processes are changing the settings of user '{user}'; try again"
        )

    def _set_once(self, path: str, credentials: Mapping[str, str]) -> None:
        if self._client.exists(path) is None:
            data = ConfigZNode(config=credentials).encode()
            self._client.create(path, data, acl=self._access.acl_of(path))
            return
        present, stat = self._client.get(path)
        config = ConfigZNode.decode(path, present).config if present else {}
        data = ConfigZNode(config={**config, **credentials}).encode()
        self._client.set(path, data, version=stat.version)

    def _tell_brokers(self, user: str) -> None:
        notice = ConfigChangeZNode(entity_path=f"users/{escaped(user)}").encode()
        # Without that folder no broker has ever run.
        with contextlib.suppress(NoNodeError):
            self._client.create(ConfigChangeZNode.PREFIX, notice, sequence=True)


def _path(user: str) -> str:
    return f"/config/users/{escaped(user)}"
