"""Settings of topics on this broker: the broker's own defaults, overridden by what ZooKeeper has
for the topic.

Rule: a topic's settings are read before its first log is opened here. Source: R-TOOL1.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from storage_engine.broker.config import BrokerConfig
from storage_engine.broker.controller_store import Gather
from storage_engine.broker.topic_config import TopicConfig
from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Coordination, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import ConfigZNode

log = logging.getLogger(__name__)

RETRY_MS = 500


class TopicConfigs:
    """Cache of topics' overrides."""

    def __init__(
        self, broker: BrokerConfig, *, coordination: Coordination, scheduler: Scheduler
    ) -> None:
        self._broker = broker
        self._coordination = coordination
        self._scheduler = scheduler
        self._overrides: dict[str, Mapping[str, str]] = {}

    def overrides(self, topic: str) -> Mapping[str, str]:
        return self._overrides.get(topic, {})

    def of(self, topic: str) -> TopicConfig:
        """Settings of a topic that `ensure` has read. Impossible overrides count as absent."""
        try:
            return TopicConfig.of(self._broker, self.overrides(topic))
        except ConfigError as failure:
            log.error("settings of topic %s ignored: %s", topic, failure)
            return TopicConfig.of(self._broker, {})

    def forget(self, topic: str) -> None:
        self._overrides.pop(topic, None)

    def ensure(self, topics: Iterable[str], done: Callable[[], None]) -> None:
        """Read the overrides of topics that are not known yet, until it succeeds; then `done`."""
        missing = [topic for topic in dict.fromkeys(topics) if topic not in self._overrides]
        gather = Gather(len(missing), done)
        for topic in missing:
            self._read(topic, gather.one)

    def read(self, topic: str, done: Callable[[Mapping[str, str] | None], None]) -> None:
        """The overrides as they are now; None when ZooKeeper does not answer."""
        path = ConfigZNode.topic_path(topic)

        def on_reply(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                done({})
            elif not reply.ok:
                done(None)
            else:
                try:
                    done(ConfigZNode.decode(path, reply.value).config)
                except ZnodeFormatError as failure:
                    log.error("settings ignored: %s", failure)
                    done({})

        self._coordination.get(path, on_reply)

    def _read(self, topic: str, done: Callable[[], None]) -> None:
        def on_read(overrides: Mapping[str, str] | None) -> None:
            if overrides is None:
                self._scheduler.call_later(RETRY_MS, lambda: self._read(topic, done))
                return
            self._overrides[topic] = overrides
            done()

        self.read(topic, on_read)
