"""The cluster as this broker describes it to clients.

A broker that has just started answers when the controller has sent it the first metadata, after
some seconds at most. It never sends an empty list of brokers: librdkafka would take it for the
whole cluster, and not ask again for minutes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.purgatory import RequestDeadline
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Scheduler

MAX_WAIT_MS = 5_000
"""Shorter than clients wait for an answer, and far longer than a controller needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterForClients:
    """The cluster's id, brokers and topics."""

    cluster_id: str
    broker_id: BrokerId
    metadata: MetadataCache
    doubts: LeaderDoubts
    has_lease: Callable[[], bool]
    """Whether this broker surely leads what it takes itself to lead."""
    scheduler: Scheduler

    def brokers_at(self, listener: str) -> list[BrokerInfo]:
        """The live brokers with the addresses of that listener, those that have it.

        A broker that may have been replaced leaves itself out, and so is no leader of anything: its
        view of the cluster may be old, and a client that goes on asking it would never hear of the
        new leaders. When it is the only one it has nobody to send clients to, and names itself.
        """
        at_listener = (broker.at(listener) for broker in self.metadata.brokers.values())
        every = [broker for broker in at_listener if broker is not None]
        if self.has_lease():
            return every
        others = [broker for broker in every if broker.broker_id != self.broker_id]
        return others or every

    def leaders_among(self, brokers: Iterable[BrokerInfo]) -> frozenset[BrokerId]:
        """Those of the brokers that clients may be sent to as leaders."""
        return frozenset(broker.broker_id for broker in brokers) - self.doubts.current()

    def when_known(self, answer: Callable[[], None]) -> None:
        """Call `answer` as soon as there is metadata, or without any when MAX_WAIT_MS are over."""
        metadata = self.metadata
        if metadata.is_initialized:
            answer()
            return

        def on_update() -> None:
            if deadline.finish():
                answer()

        def expire() -> None:
            metadata.wait_no_longer(on_update)
            answer()

        deadline = RequestDeadline(self.scheduler, MAX_WAIT_MS, expire)
        metadata.on_first_update(on_update)
