"""Reads and changes the settings of topics, brokers and clients in ZooKeeper.

A change is written only over the settings from which it was computed, and in one multi with the
notification for the other brokers: there is never one without the other. (Kafka writes them one
after the other, and a broker that dies in between leaves a change that no broker learns of.)
Source: R-TOOL1.
"""

import logging
from collections.abc import Callable, Mapping

from storage_engine.broker.settings.config_entity import OF_CLIENTS, ConfigEntity, EntityKind
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)

MAX_TRIES = 20
"""Attempts at a change that others' changes of the same settings overtake."""

Compute = Callable[[Mapping[str, str]], dict[str, str]]
"""Computes the new settings from the present ones; raises KafkaError."""

OnOutcome = Callable[[KafkaError | None], None]


class ConfigStore:
    """/config as this broker sees it."""

    def __init__(self, metadata_store: MetadataStore) -> None:
        self._metadata_store = metadata_store

    def read(self, entity: ConfigEntity, done: Callable[[Mapping[str, str] | None], None]) -> None:
        """The settings of the entity; None when ZooKeeper does not answer."""

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
        """Replace the settings by what `compute` makes of them. `is_told_anyway`: brokers are told
        also when that is what they were: a file that they name may be another."""
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
        elif self._entity.kind in OF_CLIENTS:
            self._make_parent(wanted)
        else:
            self._write(wanted, None)

    def _make_parent(self, wanted: Mapping[str, str]) -> None:
        """The folders of topics and brokers are there from the start; those of clients are made
        with the first of them."""

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
            # Somebody else has changed them, or deleted the topic.
            self.begin()
        else:
            self._done(
                KafkaError(
                    f"the settings of {self._entity} are being changed by others all the time",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
            )


def _decoded(entity: ConfigEntity, reply: ZkReply) -> Mapping[str, str]:
    """The settings in a node; none if it can't be read, and the next change repairs it. A node may
    be empty that was made as the folder of others."""
    if not reply.data:
        return {}
    try:
        return ConfigZNode.decode(entity.znode_path, reply.data).config
    except ZnodeFormatError as failure:
        log.error("settings ignored: %s", failure)
        return {}


def _no_topic(entity: ConfigEntity) -> KafkaError:
    return KafkaError(f"{entity} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _no_answer(entity: ConfigEntity) -> KafkaError:
    return KafkaError(
        f"ZooKeeper did not answer: the settings of {entity} may or may not have been changed",
        ErrorCode.REQUEST_TIMED_OUT,
    )
