"""The end of a full LeaderAndIsr order, which names every replica of this broker.

A replica that a full order does not name is stopped when its last part is carried out. A replica
whose partition other brokers have by now is deleted. A replica of an unknown partition may belong
to a deleted topic, which `orphaned_logs` finds out. Source: R-CTL4, R-CTL8.
"""

import logging
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import NamedReplicas
from storage_engine.broker.handlers.controller.stop_replica import stop
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.upkeep.orphaned_logs import OrphanedLogs
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullOrders:
    """Counts the parts of full orders, and ends what they leave out."""

    broker_id: BrokerId
    replicas: ReplicaManager
    metadata: MetadataCache
    orphaned_logs: OrphanedLogs
    named: NamedReplicas

    def begin(self, request: LeaderAndIsrRequest) -> bool:
        """Begins a part; returns False when a part before it is missing."""
        if not self.named.expects(request):
            log.error("order refused: its part %d came without those before", request.part)
            return False
        if request.part == 0:
            self.replicas.postponed.forget_all()
        return True

    def end(self, request: LeaderAndIsrRequest) -> None:
        """The part is carried out completely."""
        partitions = {TopicPartition(item.topic, item.partition) for item in request.partitions}
        self.named.note(request, partitions)
        if not request.goes_on:
            self._stop_all_but(self.named.partitions)
            self._delete_all_but(self.named.partitions)
            self.replicas.lease.unfence()

    def _stop_all_but(self, named: set[TopicPartition]) -> None:
        for partition in list(self.replicas):
            if partition.topic_partition not in named:
                self.replicas.stop(partition.topic_partition, delete=False)

    def _delete_all_but(self, named: set[TopicPartition]) -> None:
        """Delete replicas that went to other brokers while this one was away: the controller does
        not wait for the dead."""
        unknown = []
        for tp in sorted(self.replicas.logs_here().keys() - named):
            known = (self.metadata.partitions(tp.topic) or {}).get(tp.partition)
            if known is None:
                unknown.append(tp)
            elif self.broker_id not in known.replicas:
                log.info("replica deleted: it is on other brokers now partition=%s", tp)
                stop(self.replicas, tp, delete=True)
        self.orphaned_logs.put_aside_deleted(unknown)
