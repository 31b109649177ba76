"""Notifies the controller that replicas of this broker failed; the controller then asks which.

A notice is repeated until ZooKeeper has it, and names only the broker: the controller sends the
broker all its leadership again and learns from the answer what can't be served, so that a notice
that comes twice or late does no harm. Source: KIP-112 (`/log_dir_event_notification`).
"""

from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply
from storage_engine.zookeeper.admin_znodes import LogDirEventZNode

NOTICE_RETRY_MS = 500


class LogDirNotice:
    """Notices of one broker, one under way at a time."""

    def __init__(
        self, metadata_store: MetadataStore, scheduler: Scheduler, *, broker_id: int
    ) -> None:
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._data = LogDirEventZNode(broker_id=BrokerId(broker_id)).encode()
        self._under_way = False
        self._another = False

    def send(self) -> None:
        """Notify the controller: more replicas have failed."""
        if self._under_way:
            self._another = True
            return
        self._under_way = True
        self._another = False
        # Others may have removed the parent, which the controller waits for.
        self._metadata_store.create(
            LogDirEventZNode.PREFIX, self._data, self._sent, sequence=True, make_parents=True
        )

    def _sent(self, reply: ZkReply) -> None:
        if not reply.ok:
            self._scheduler.call_later(NOTICE_RETRY_MS, self._again)
            return
        self._under_way = False
        if self._another:
            self.send()

    def _again(self) -> None:
        self._under_way = False
        self.send()
