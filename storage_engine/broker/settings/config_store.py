"""Reads and changes the settings of topics, groups, brokers and clients in ZooKeeper.

An entity is a topic, a group, one broker, all brokers, a user (its settings are credentials and
quotas), or other clients that have quotas. Its path is the same below /config and in notifications:
`topics/<topic>`, `groups/<group>`, `brokers/<id>`, `brokers/<default>`, `users/<name>`,
`users/<name>/clients/<client-id>`; names of groups and clients are escaped as in a URL.

A change is written only while the node has the settings from which the change was computed. The
same ZooKeeper transaction (`multi`) writes the notification for the other brokers. (Kafka writes
the two one after the other: a broker that dies in between leaves a change that no broker notices.)
Source: R-TOOL1.
"""

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import topic_name_problem
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.core.printable import escaped, printable, unescaped
from storage_engine.core.quotas import QuotaEntity
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import BROKER_IDS, ZnodeFormatError, number_named
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)


class EntityKind(enum.Enum):
    """Kinds, by their folder below /config."""

    TOPIC = "topics"
    GROUP = "groups"
    BROKER = "brokers"
    USER = "users"
    QUOTA = ""
    """Several users or clients at once, in several folders."""


OF_CLIENTS = (EntityKind.USER, EntityKind.QUOTA)
_ESCAPED = (EntityKind.USER, EntityKind.GROUP)
"""The kinds whose names may have any characters."""


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """A topic, group, broker, user or clients; the broker's name `<default>` stands for all."""

    kind: EntityKind
    name: str
    """For QUOTA the path below /config."""

    @classmethod
    def topic(cls, topic: str) -> "ConfigEntity":
        return cls(EntityKind.TOPIC, topic)

    @classmethod
    def group(cls, group_id: str) -> "ConfigEntity":
        return cls(EntityKind.GROUP, group_id)

    @classmethod
    def broker(cls, broker_id: int) -> "ConfigEntity":
        return cls(EntityKind.BROKER, str(broker_id))

    @classmethod
    def all_brokers(cls) -> "ConfigEntity":
        return cls(EntityKind.BROKER, ConfigZNode.ALL_BROKERS)

    @classmethod
    def user(cls, name: str) -> "ConfigEntity":
        return cls(EntityKind.USER, name)

    @classmethod
    def of_quota(cls, entity: QuotaEntity) -> "ConfigEntity":
        if entity.user and entity.client_id is None:
            return cls.user(entity.user)
        return cls(EntityKind.QUOTA, entity.path)

    @classmethod
    def parse(cls, path: str) -> "ConfigEntity | None":
        """The entity of a path such as `topics/<topic>`; None for one without settings here."""
        folder, _, name = path.partition("/")
        kinds = {kind.value: kind for kind in EntityKind}
        kind = kinds.get(folder)
        if kind is EntityKind.TOPIC and topic_name_problem(name) is None:
            return cls(kind, name)
        if kind is EntityKind.GROUP:
            group_id = unescaped(name)
            return None if group_id is None else cls(kind, group_id)
        quota = QuotaEntity.parse(path)
        if quota is not None:
            return cls.of_quota(quota)
        is_broker = name == ConfigZNode.ALL_BROKERS or number_named(name, BROKER_IDS) is not None
        return cls(kind, name) if kind is EntityKind.BROKER and is_broker else None

    @classmethod
    def of_resource(cls, resource_type: int, name: str) -> "ConfigEntity":
        """The entity of a resource in a request. Raises KafkaError."""
        if resource_type == TOPIC_RESOURCE:
            problem = topic_name_problem(name)
            if problem is not None:
                raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
            return cls.topic(name)
        if resource_type == GROUP_RESOURCE:
            check_group_name(name)
            return cls.group(name)
        if resource_type != BROKER_RESOURCE:
            raise KafkaError(
                f"resources of type {resource_type} have no settings here",
                ErrorCode.INVALID_REQUEST,
            )
        if not name:
            return cls.all_brokers()
        if number_named(name, BROKER_IDS) is None:
            raise KafkaError(f"'{name}' is not a broker's id", ErrorCode.INVALID_REQUEST)
        return cls(EntityKind.BROKER, name)

    @property
    def path(self) -> str:
        if self.kind is EntityKind.QUOTA:
            return self.name
        name = escaped(self.name) if self.kind in _ESCAPED else self.name
        return f"{self.kind.value}/{name}"

    @property
    def quota(self) -> QuotaEntity | None:
        """The entity whose quotas are in the settings; None for topics, groups and brokers."""
        return QuotaEntity.parse(self.path) if self.kind in OF_CLIENTS else None

    @property
    def znode_path(self) -> str:
        return f"/config/{self.path}"

    def __str__(self) -> str:
        if self.kind is EntityKind.TOPIC:
            return f"topic '{self.name}'"
        if self.kind is EntityKind.GROUP:
            return f"group '{printable(self.name)}'"
        if self.kind is EntityKind.USER:
            return f"user '{printable(self.name)}'"
        if self.kind is EntityKind.QUOTA:
            return str(self.quota)
        if self.name == ConfigZNode.ALL_BROKERS:
            return "all brokers"
        return f"broker {self.name}"


TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
GROUP_RESOURCE = 32
"""The resource types of the protocol."""

GROUP_NAME_MAX_BYTES = 249
"""The longest id of a group with settings of its own: escaped, it is the name of a znode."""


def check_group_name(name: str) -> None:
    """Raises KafkaError for an id that no group with settings may have."""
    if not name:
        raise KafkaError("the id of a group must not be empty", ErrorCode.INVALID_REQUEST)
    if len(name.encode()) > GROUP_NAME_MAX_BYTES:
        raise KafkaError(
            f"a group with settings has an id of at most {GROUP_NAME_MAX_BYTES} bytes",
            ErrorCode.INVALID_REQUEST,
        )


MAX_TRIES = 20
"""The most attempts at a change while others keep changing the same settings."""

Compute = Callable[[Mapping[str, str]], dict[str, str]]
"""Computes the new settings from the present ones; raises KafkaError."""

OnOutcome = Callable[[KafkaError | None], None]


class ConfigStore:
    """/config as this broker sees it."""

    def __init__(self, metadata_store: MetadataStore) -> None:
        self._metadata_store = metadata_store

    def read(self, entity: ConfigEntity, done: Callable[[Mapping[str, str] | None], None]) -> None:
        """Read the settings of the entity; None when ZooKeeper does not answer."""

        def on_reply(reply: ZkReply) -> None:
            if reply.is_absent:
                done({})
            elif not reply.ok:
                done(None)
            else:
                done(_decoded(entity, reply))

        self._metadata_store.get(entity.znode_path, on_reply)

    def change(
        self,
        entity: ConfigEntity,
        compute: Compute,
        done: OnOutcome,
        *,
        validate_only: bool,
        is_told_anyway: bool = False,
    ) -> None:
        """Replace the settings by what `compute` makes of them. `is_told_anyway`: notify the
        brokers of unchanged settings, too: a file that they name may be another."""
        _Alteration(
            self._metadata_store,
            entity,
            compute,
            done,
            validate_only=validate_only,
            is_told_anyway=is_told_anyway,
        ).begin()


class _Alteration:
    """A change of settings that is not completed yet."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        entity: ConfigEntity,
        compute: Compute,
        done: OnOutcome,
        *,
        validate_only: bool,
        is_told_anyway: bool,
    ) -> None:
        self._metadata_store = metadata_store
        self._entity = entity
        self._compute = compute
        self._done = done
        self._validate_only = validate_only
        self._is_told_anyway = is_told_anyway
        self._tries = 0

    def begin(self) -> None:
        if self._entity.kind is EntityKind.TOPIC:
            self._metadata_store.exists(TopicZNode.path(self._entity.name), self._on_topic)
        else:
            self._read()

    def _on_topic(self, reply: ZkReply) -> None:
        if reply.status is ZkStatus.NO_NODE:
            self._done(_no_topic(self._entity))
        elif not reply.ok:
            self._done(_no_answer(self._entity))
        else:
            self._read()

    def _read(self) -> None:
        self._tries += 1
        self._metadata_store.get(self._entity.znode_path, self._on_read)

    def _on_read(self, reply: ZkReply) -> None:
        if not reply.ok and not reply.is_absent:
            self._done(_no_answer(self._entity))
            return
        present = _decoded(self._entity, reply) if reply.ok else {}
        try:
            wanted = self._compute(present)
        except KafkaError as failure:
            self._done(failure.as_outcome())
            return
        if self._validate_only or (wanted == present and not self._is_told_anyway):
            self._done(None)
            return
        if reply.stat is not None:
            self._write(wanted, reply.stat.version)
        elif self._entity.kind in (*OF_CLIENTS, EntityKind.GROUP):
            self._make_parent(wanted)
        else:
            self._write(wanted, None)

    def _make_parent(self, wanted: Mapping[str, str]) -> None:
        """Make the folder: those of topics and brokers exist from the start, those of groups and
        clients are made with their first settings."""

        def on_made(reply: ZkReply) -> None:
            if reply.ok or reply.status is ZkStatus.NODE_EXISTS:
                self._write(wanted, None)
            else:
                self._done(_no_answer(self._entity))

        parent = self._entity.znode_path.rpartition("/")[0]
        self._metadata_store.create(parent, b"", on_made, make_parents=True)

    def _write(self, wanted: Mapping[str, str], version: int | None) -> None:
        self._metadata_store.multi(self._operations(wanted, version), self._on_written)

    def _operations(self, wanted: Mapping[str, str], version: int | None) -> list[ZkOp]:
        path = self._entity.znode_path
        data = ConfigZNode(config=wanted).encode()
        operations = []
        if self._entity.kind is EntityKind.TOPIC:
            # A topic that is deleted meanwhile must not leave settings behind.
            operations.append(ZkOp(kind=ZkOpKind.CHECK, path=TopicZNode.path(self._entity.name)))
        if version is None:
            operations.append(ZkOp(kind=ZkOpKind.CREATE, path=path, data=data))
        else:
            operations.append(ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=version))
        operations.append(
            ZkOp(
                kind=ZkOpKind.CREATE,
                path=ConfigChangeZNode.PREFIX,
                data=ConfigChangeZNode(entity_path=self._entity.path).encode(),
                sequence=True,
            )
        )
        return operations

    def _on_written(self, reply: ZkReply) -> None:
        if reply.ok:
            log.info("settings changed of=%s", self._entity.path)
            self._done(None)
        elif reply.status is ZkStatus.UNKNOWN:
            self._done(_no_answer(self._entity))
        elif self._tries < MAX_TRIES:
            # The settings were changed by others, or the topic was deleted.
            self.begin()
        else:
            self._done(
                KafkaError(
                    f"the settings of {self._entity} are being changed by others all the time",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
            )


def _decoded(entity: ConfigEntity, reply: ZkReply) -> Mapping[str, str]:
    """The settings in a node; none if it can't be read, and the next change repairs it. A node that
    was made as the folder of others may be empty."""
    if not reply.data:
        return {}
    try:
        return ConfigZNode.decode(entity.znode_path, reply.data).config
    except ZnodeFormatError as failure:
        log.error("settings ignored, the next change replaces them: %s", failure)
        return {}


def _no_topic(entity: ConfigEntity) -> KafkaError:
    return KafkaError(f"{entity} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _no_answer(entity: ConfigEntity) -> KafkaError:
    return KafkaError(
        f"ZooKeeper did not answer: the settings of {entity} may or may not have been changed",
        ErrorCode.REQUEST_TIMED_OUT,
    )


Found = list[ConfigEntity] | None


class ListedEntities:
    """Lists the groups and clients with settings, by the folders below /config; nothing is
    kept."""

    def __init__(self, metadata_store: MetadataStore) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()

    def read(self, done: Callable[[Found], None]) -> None:
        """List all entities; None when ZooKeeper does not answer."""
        self._flows.start(self._read(), done)

    def close(self) -> None:
        self._flows.close()

    def _read(self) -> Flow[Found]:
        users = yield from self._names("/config/users")
        clients = yield from self._names("/config/clients")
        ips = yield from self._names("/config/ips")
        groups = yield from self._names("/config/groups")
        if users is None or clients is None or ips is None or groups is None:
            return None
        of_users = yield from self._flows.together(
            self._names(f"/config/users/{user}/clients") for user in users
        )
        found = [
            *_entities("users", users),
            *_entities("clients", clients),
            *_entities("ips", ips),
            *_entities("groups", groups),
        ]
        for user, names in zip(users, of_users, strict=True):
            if names is None:
                return None
            found += _entities(f"users/{user}/clients", names)
        return found

    def _names(self, path: str) -> Flow[list[str] | None]:
        reply = yield from self._zookeeper.children(path)
        if reply.is_absent:
            return []
        return list(reply.children) if reply.ok else None


def _entities(folder: str, names: Iterable[str]) -> list[ConfigEntity]:
    """The entities without invalid names: no client can have an unescaped name like theirs."""
    parsed = [ConfigEntity.parse(f"{folder}/{name}") for name in names]
    return [entity for entity in parsed if entity is not None]


class Gather:
    """Calls back once, when a given number of replies have come."""

    __slots__ = ("_done", "_open")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._open = count
        self._done = done
        if count == 0:
            done()

    def one(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._done()
