"""Creates a topic that keeps the state of coordinators, `__transaction_state` or
`__consumer_offsets`, when it is first needed. Its number of partitions is read from ZooKeeper,
once, and never guessed.

A broker's view of a topic grows partition by partition, and two brokers with different counts would
take the same name for different partitions: two producers with one id could not fence each other,
two halves of a group would share out the same partitions. The count never changes
(`core.internal_topics`). Source: KIP-98.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.topic_admin import RequestedTopic, TopicAdmin
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)


STATE_MESSAGE_MAX_BYTES = 16 << 20
"""`max.message.bytes` of a state topic: a record that commits thousands of tasks, with their
partitions and origins, is one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopicPlan:
    """The name of a coordinator's topic and the settings to create it with."""

    topic: str
    purpose: str
    """The service that is missing while the topic can't be used; for the log."""
    partitions: str
    """The name of the setting, as in the next two fields."""
    replication_factor: str
    segment_bytes: str
    config: Mapping[str, str]
    """Topic settings, each with the broker setting that has its value."""
    number_of: Callable[[str, int], int] = state_partition
    """(name, number of partitions) -> the partition that keeps the state of the name."""


class StateTopic:
    """A coordinators' topic, as one broker knows it."""

    def __init__(
        self,
        plan: StateTopicPlan,
        config: DynamicConfig,
        *,
        metadata_store: MetadataStore,
        topic_admin: TopicAdmin,
        metadata: MetadataCache,
    ) -> None:
        self._plan = plan
        self._config = config
        self._metadata_store = metadata_store
        self._topic_admin = topic_admin
        self._metadata = metadata
        self._known: tuple[TopicPartition, ...] | None = None
        """All partitions; None while they are looked up. Their number never changes."""
        self._busy = False
        self._complaint = ""

    def partition_of(self, name: str) -> TopicPartition | None:
        """The partition that keeps the state of a name; None while the topic is being looked up:
        ask again."""
        known = self._known
        if known is None:
            self.learn()
            return None
        return known[self._plan.number_of(name, len(known))]

    @property
    def partitions(self) -> int | None:
        """The number of partitions; None while it is being looked up, or there is no such topic."""
        if self._known is None:
            self.learn()
            return None
        return len(self._known)

    def coordinator_of(self, name: str) -> BrokerInfo | None:
        """The live broker that leads the name's partition, as far as this broker knows."""
        tp = self.partition_of(name)
        known = (
            None if tp is None else (self._metadata.partitions(tp.topic) or {}).get(tp.partition)
        )
        return None if known is None else self._metadata.brokers.get(BrokerId(known.leader))

    def learn(self, *, create: bool = False) -> None:
        """Looks up the number of partitions; with `create`, creates the topic if it does not
        exist."""
        if self._busy or self._known is not None:
            return
        self._busy = True
        path = TopicZNode.path(self._plan.topic)
        self._metadata_store.get(path, lambda reply: self._learned(reply, create))

    def _learned(self, reply: ZkReply, create: bool) -> None:
        self._busy = False
        if reply.ok:
            try:
                node = TopicZNode.decode(self._plan.topic, reply.data)
            except ZnodeFormatError as failure:
                self._complain(str(failure))
                return
            topic = self._plan.topic
            self._known = tuple(TopicPartition(topic, each) for each in range(len(node.assignment)))
        elif reply.status is ZkStatus.NO_NODE and create:
            self._create()

    def _create(self) -> None:
        def on_written(failure: KafkaError | None) -> None:
            self._busy = False
            if failure is None:
                log.info("created topic=%s since it is needed now", self._plan.topic)
            elif failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                self._complain(str(failure))
            # Read it as it is now, whichever broker has created it.
            self.learn()

        plan, config = self._plan, self._config
        try:
            planned = self._topic_admin.plan(
                RequestedTopic(
                    topic=plan.topic,
                    partitions=config.integer(plan.partitions),
                    replication_factor=config.integer(plan.replication_factor),
                    may_share_machines=True,
                    config={
                        "cleanup.policy": "compact",
                        "segment.bytes": str(config.integer(plan.segment_bytes)),
                        "unclean.leader.election.enable": "false",
                        "max.message.bytes": str(STATE_MESSAGE_MAX_BYTES),
                        **{key: str(config.integer(name)) for key, name in plan.config.items()},
                    },
                )
            )
        except KafkaError as failure:
            self._complain(str(failure))
            return
        self._busy = True
        if guarded("a new topic", self._topic_admin.write, planned, on_written) is FAILED:
            self._busy = False

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log.error(
                "no %s as long as %s can't be used: %s", self._plan.purpose, self._plan.topic, text
            )
