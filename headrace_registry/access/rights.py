"""Rights on subjects follow the rights that the cluster grants on topics.

Subject                      see it                    register    delete    settings, modes
T-key, T-value               Read or Describe on T     Write       Delete    Alter
others, or T is not there    Describe on the cluster   Alter on the cluster

A user who may not know whether T is there may do nothing with its subjects.

The settings and the mode of the whole registry are seen by all, and changed with Alter on the
cluster. Brokers say what a user may do (Metadata's authorized operations), asked as that user.
Source: R-SR5.
"""

import enum
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from headrace_console.cluster.upstream import Upstream
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.core.security.acl_rules import AclOperation
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest

AGE_S = 5.0
"""A right that was taken away counts for so long."""
MOST_ASKED = 1_000
"""Topics in one request."""
MOST_KNOWN = 20_000
_VERSION = 10
"""The last version that tells the operations on the cluster, too."""
_SUFFIXES = ("-key", "-value")


class Doing(enum.Enum):
    SEE = "see"
    REGISTER = "register schemas under"
    DELETE = "delete"
    SET = "set"


_ON_TOPIC = {
    Doing.SEE: (AclOperation.READ, AclOperation.DESCRIBE),
    Doing.REGISTER: (AclOperation.WRITE,),
    Doing.DELETE: (AclOperation.DELETE,),
    Doing.SET: (AclOperation.ALTER,),
}
_ON_CLUSTER = {
    Doing.SEE: (AclOperation.DESCRIBE,),
    Doing.REGISTER: (AclOperation.ALTER,),
    Doing.DELETE: (AclOperation.ALTER,),
    Doing.SET: (AclOperation.ALTER,),
}


class Viewer(Protocol):
    """The one who asks."""

    def seen(self, subjects: Iterable[str]) -> set[str]:
        """The subjects among these that they may see."""
        ...

    def may(self, doing: Doing, subject: str | None) -> bool:
        """`subject` None: the whole registry."""
        ...


class Everybody:
    """Without log-ins all may do all."""

    def seen(self, subjects: Iterable[str]) -> set[str]:
        return set(subjects)

    def may(self, doing: Doing, subject: str | None) -> bool:
        return True


class _Known(NamedTuple):
    operations: int | None
    """None: there is no such topic."""
    at_s: float


class LoggedInUser:
    """A user of the cluster, for any number of threads."""

    def __init__(self, upstream: Upstream, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._upstream = upstream
        self._now_s = now_s
        self._lock = threading.Lock()
        self._topics: dict[str, _Known] = {}
        self._cluster = _Known(None, float("-inf"))

    def close(self) -> None:
        self._upstream.close()

    def seen(self, subjects: Iterable[str]) -> set[str]:
        wanted = set(subjects)
        operations = self._operations({_topic_of(each) for each in wanted})
        return {each for each in wanted if self._allows(Doing.SEE, each, operations)}

    def may(self, doing: Doing, subject: str | None) -> bool:
        if subject is None:
            return doing is Doing.SEE or self._allows(doing, "", self._operations(set()))
        return self._allows(doing, subject, self._operations({_topic_of(subject)}))

    def _allows(self, doing: Doing, subject: str, known: dict[str | None, int | None]) -> bool:
        topic = _topic_of(subject)
        on_topic = None if topic is None else known[topic]
        if on_topic is not None:
            return any(on_topic >> each & 1 for each in _ON_TOPIC[doing])
        on_cluster = known[None] or 0
        return any(on_cluster >> each & 1 for each in _ON_CLUSTER[doing])

    def _operations(self, topics: Collection[str | None]) -> dict[str | None, int | None]:
        """The operations on topics, and under None on the cluster; asked for where they are old."""
        now_s = self._now_s()
        names = sorted(each for each in topics if each is not None)
        with self._lock:
            if len(self._topics) > MOST_KNOWN:
                self._topics.clear()
            oldest_s = now_s - AGE_S
            missing = [
                name
                for name in names
                if name not in self._topics or self._topics[name].at_s < oldest_s
            ]
            is_old = self._cluster.at_s < oldest_s
        if missing or is_old:
            self._ask(missing)
        with self._lock:
            found: dict[str | None, int | None] = {
                name: self._topics[name].operations for name in names
            }
            found[None] = self._cluster.operations
        return found

    def _ask(self, topics: list[str]) -> None:
        for start in range(0, max(1, len(topics)), MOST_ASKED):
            some = topics[start : start + MOST_ASKED]
            self._upstream.call(partial(self._ask_some, topics=some))

    def _ask_some(self, cluster: Cluster, topics: list[str]) -> None:
        answer = cluster.ask_any(
            METADATA,
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
            ),
            version=_VERSION,
        )
        now_s = self._now_s()
        with self._lock:
            self._cluster = _Known(_bits(answer.cluster_authorized_operations), now_s)
            self._topics |= {name: _Known(None, now_s) for name in topics}
            for topic in answer.topics:
                if topic.topic is None:
                    continue
                if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._topics[topic.topic] = _Known(0, now_s)
                elif not topic.error_code:
                    bits = _bits(topic.authorized_operations)
                    self._topics[topic.topic] = _Known(bits, now_s)


def _bits(operations: int) -> int | None:
    """None where the broker did not say."""
    return operations if operations >= 0 else None


def _topic_of(subject: str) -> str | None:
    for suffix in _SUFFIXES:
        if subject.endswith(suffix) and len(subject) > len(suffix):
            return subject.removesuffix(suffix)
    return None


def check_may(viewer: Viewer, doing: Doing, subject: str | None) -> None:
    """RegistryError 40301 for what they may not do."""
    if not viewer.may(doing, subject):
        what = "the whole registry" if subject is None else f"subject '{subject}'"
        raise RegistryError(40301, f"you may not {doing.value} {what}")
