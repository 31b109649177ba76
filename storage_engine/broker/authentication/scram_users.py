"""The users that log in by SCRAM, as far as this broker has read them from ZooKeeper.

They stand in the settings of users, so the notifications of changed settings bring them. Source:
KIP-84.

`agree_on_decoy_key` agrees with the other brokers on the key from which the salts of unknown SCRAM
users are made.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping

from storage_engine.core.ports import Scheduler
from storage_engine.core.printable import printable
from storage_engine.core.security.sasl_server import FoundCredential, ScramDecoys
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramCredentialError,
    ScramMechanism,
)
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ScramDecoyZNode

log = logging.getLogger(__name__)


_USUAL_SALT_BYTES = 26
"""The salt length of Kafka's tools."""


class ScramUsers:
    """Credentials by mechanism and user."""

    def __init__(self, decoys: ScramDecoys) -> None:
        """`decoys` make the credentials of users that do not exist."""
        self._decoys = decoys
        self._credentials: dict[ScramMechanism, dict[str, ScramCredential]] = {
            mechanism: {} for mechanism in ScramMechanism
        }
        self._forms: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }
        """(iterations, salt length) -> the number of users whose credentials have them."""

    def use_decoys(self, decoys: ScramDecoys) -> None:
        """Use these decoys, which are the same on all brokers, from now on."""
        self._decoys = decoys

    def __iter__(self) -> Iterator[str]:
        """All users, once each."""
        return iter({user for users in self._credentials.values() for user in users})

    def update(self, user: str, settings: Mapping[str, str]) -> None:
        """Replace the credentials of the user by these in its settings; none: the user is gone."""
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
                    "the %s credential of user '%s' is ignored: %s; create it again",
                    mechanism.value,
                    printable(user),
                    failure,
                )
                continue
            users[user] = credential
            self._forms[mechanism][_form(credential)] += 1

    def find(self, mechanism: ScramMechanism, user: str) -> FoundCredential:
        """The credential of the user, or a decoy that resembles most users' credentials."""
        (iterations, salt_bytes), count = max(
            self._forms[mechanism].items(), key=lambda item: item[1], default=(_USUAL, 0)
        )
        if not count:
            iterations, salt_bytes = _USUAL
        # Made for existing users, too, so that it takes as long.
        decoy = self._decoys.credential(
            mechanism, user, iterations=iterations, salt_bytes=salt_bytes
        )
        found = self._credentials[mechanism].get(user)
        return FoundCredential(found or decoy, found is not None)


_USUAL = ITERATIONS_MIN, _USUAL_SALT_BYTES


def _form(credential: ScramCredential) -> tuple[int, int]:
    return credential.iterations, len(credential.salt)


RETRY_MS = 500


def agree_on_decoy_key(zookeeper: ZookeeperFlows, scheduler: Scheduler) -> Flow[bytes]:
    """Read the key, or create it; waits for ZooKeeper for as long as it takes."""
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
