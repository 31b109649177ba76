"""What a replica does when the controller gives it a role. Its one rule: the log comes first, since
it alone may refuse.

Whether an order still holds is judged before, by the replica manager. Source: R-CTL3, R-REP2,
R-REP8, document 001 (LeaderAndIsrRequest).
"""

import logging

from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.isr_writer import IsrWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock, Endpoint
from storage_engine.core.replication.partition import (
    Appended,
    LagLimits,
    LeaderPartition,
    Leadership,
)
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition

state_change_log = logging.getLogger("headrace.state_change")


class ReplicaRoles:
    """Makes replicas of this broker leaders and followers."""

    def __init__(
        self,
        *,
        broker_id: int,
        lag: LagLimits,
        clock: Clock,
        isr: IsrWriter,
        durable_acks: DurableAcks,
    ) -> None:
        self._broker_id = broker_id
        self._lag = lag
        self._clock = clock
        self._isr = isr
        self._durable_acks = durable_acks
        self.fetchers: FetcherManager | None = None
        """Set once by the wiring: fetchers and replicas need each other."""

    def take(
        self,
        partition: HostedPartition,
        item: LeaderAndIsrPartition,
        endpoints: dict[int, Endpoint],
    ) -> None:
        """A KafkaError when the log refuses; the role is as it was then."""
        partition.controller_epoch = item.controller_epoch
        partition.assigned_replicas = tuple(item.replicas)
        if item.leader == self._broker_id:
            # First, since it can fail: the log may know a newer epoch.
            partition.log.leader_appends.start_epoch(item.leader_epoch)
            self._lead(partition, item)
        else:
            self._follow(partition, item, endpoints)
        state_change_log.info(
            "became %s partition=%s leader=%d leader_epoch=%d isr=%s controller_epoch=%d",
            partition.role.value,
            partition.topic_partition,
            item.leader,
            item.leader_epoch,
            list(item.isr),
            item.controller_epoch,
        )

    def _lead(self, partition: HostedPartition, item: LeaderAndIsrPartition) -> None:
        leadership = Leadership(
            leader_epoch=item.leader_epoch,
            partition_epoch=item.partition_epoch,
            isr=frozenset(item.isr),
            assigned_replicas=tuple(item.replicas),
            joined_epochs=item.joined_epochs,
        )
        now_ms = self._clock.monotonic_ms()
        self.stop_fetching(partition.topic_partition)
        partition.leader_id = item.leader
        partition.leader_epoch = item.leader_epoch
        leader = partition.leader
        if leader is not None:
            effects = leader.renew(leadership, now_ms=now_ms)
        else:
            leader = LeaderPartition(
                leadership,
                local=self._broker_id,
                log_end_offset=partition.log.log_end_offset,
                high_watermark=partition.follower_high_watermark,
                now_ms=now_ms,
                limits=self._lag,
                flushed_end_offset=partition.flushed_end_offset,
            )
            partition.become_leader(leader)
            effects = leader.step(Appended(log_end_offset=partition.log.log_end_offset))
        self._isr.carry_out(partition, leader, effects)
        partition.wake_all()
        if partition.must_flush:
            self._durable_acks.flush(partition)

    def _follow(
        self,
        partition: HostedPartition,
        item: LeaderAndIsrPartition,
        endpoints: dict[int, Endpoint],
    ) -> None:
        partition.leader_id = item.leader
        partition.leader_epoch = item.leader_epoch
        partition.become_follower(item.leader)
        partition.wake_all()
        if self.fetchers is None:
            return
        endpoint = endpoints.get(item.leader)
        if item.leader == -1 or endpoint is None:
            self.fetchers.remove(partition.topic_partition)
        else:
            self.fetchers.add(partition, endpoint)

    def refresh_endpoint(self, partition: HostedPartition, endpoints: dict[int, Endpoint]) -> None:
        """The same leadership, said again: a leader that came back elsewhere is followed there."""
        endpoint = endpoints.get(partition.leader_id)
        if self.fetchers is not None and partition.role is Role.FOLLOWER and endpoint is not None:
            self.fetchers.add(partition, endpoint)

    def fetch(self) -> None:
        """Begins with all that is followed since the last call."""
        if self.fetchers is not None:
            self.fetchers.wake()

    def replace(self, partition: HostedPartition) -> None:
        """Another object for the same replica, in the same role."""
        if self.fetchers is not None:
            self.fetchers.replace(partition)

    def stop_fetching(self, tp: TopicPartition) -> None:
        """The replica of this partition follows nobody any more."""
        if self.fetchers is not None:
            self.fetchers.remove(tp)
