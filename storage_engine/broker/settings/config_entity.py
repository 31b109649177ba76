"""The kinds of entities that have settings in ZooKeeper: a topic, one broker, all brokers, a user,
whose settings are its credentials and quotas, or other clients that have quotas.

It has one name everywhere: `topics/<topic>`, `brokers/<id>`, `brokers/<default>`, `users/<name>`,
`users/<name>/clients/<client-id>`, as below /config and in notifications; names of clients are
escaped there as in a URL.
"""

import enum
from dataclasses import dataclass

from storage_engine.core.entity_names import escaped
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import topic_name_problem
from storage_engine.core.printable import printable
from storage_engine.core.quotas.quota_entity import QuotaEntity
from storage_engine.zookeeper.znode_json import BROKER_IDS, number_named
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode


class EntityKind(enum.Enum):
    """Kinds, by their folder below /config."""

    TOPIC = "topics"
    BROKER = "brokers"
    USER = "users"
    QUOTA = ""
    """Several users or clients at once, in several folders."""


OF_CLIENTS = (EntityKind.USER, EntityKind.QUOTA)


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """A topic, broker, user or clients; the broker's name `<default>` stands for all brokers."""

    kind: EntityKind
    name: str
    """The path, of QUOTA."""

    @classmethod
    def topic(cls, topic: str) -> "ConfigEntity":
        return cls(EntityKind.TOPIC, topic)

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
        """The entity of `topics/<topic>`; None for what has no settings here."""
        folder, _, name = path.partition("/")
        kinds = {kind.value: kind for kind in EntityKind}
        kind = kinds.get(folder)
        if kind is EntityKind.TOPIC and topic_name_problem(name) is None:
            return cls(kind, name)
        quota = QuotaEntity.parse(path)
        if quota is not None:
            return cls.of_quota(quota)
        is_broker = name == ConfigZNode.ALL_BROKERS or number_named(name, BROKER_IDS) is not None
        return cls(kind, name) if kind is EntityKind.BROKER and is_broker else None

    @classmethod
    def of_resource(cls, resource_type: int, name: str) -> "ConfigEntity":
        """The entity as requests name it. Raises KafkaError."""
        if resource_type == TOPIC_RESOURCE:
            problem = topic_name_problem(name)
            if problem is not None:
                raise KafkaError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
            return cls.topic(name)
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
        name = escaped(self.name) if self.kind is EntityKind.USER else self.name
        return f"{self.kind.value}/{name}"

    @property
    def quota(self) -> QuotaEntity | None:
        """Whose quotas stand there; None of topics and brokers."""
        return QuotaEntity.parse(self.path) if self.kind in OF_CLIENTS else None

    @property
    def znode_path(self) -> str:
        return f"/config/{self.path}"

    def __str__(self) -> str:
        if self.kind is EntityKind.TOPIC:
            return f"topic '{self.name}'"
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
"""Resource types of the protocol."""
