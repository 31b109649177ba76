"""Writes proposed ISRs to ZooKeeper and settles those whose outcome is not known.

An answer counts only while the same leadership (object and leader epoch) that proposed it still
stands. A fenced broker writes nothing: a state written after its new registration would say that
its new incarnation was ordered to lead (R-REP11). An accepted change is announced to the controller
by `/isr_change_notification`. When an exception ends a write, its outcome counts as unknown.
Source: R-REP4, KIP-497.
"""

import logging

from storage_engine.broker import unexpected
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.core.replication.partition import (
    IsrAccepted,
    IsrOutcomeUnknown,
    LeaderPartition,
    ProposeIsr,
    StateObserved,
)
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")

RETRY_MS = 500
"""Pause before an undecided state is read again: ZooKeeper is away or slow."""

RETRY_MAX_MS = 30_000
"""The longest pause where the state is missing, or not the last one written: the controller is
notified each time."""

NOTIFY_DELAY_MS = 50
"""The time for which ISR changes are gathered into one notification to the controller."""
PARTITIONS_PER_NOTIFICATION = 3_000
"""With this many topics of the longest names a znode is below ZooKeeper's limit of 1 MB."""


class IsrWriter:
    """Carries out the effects of leaders' steps."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        *,
        local: int,
        lease: LeaderLease,
    ) -> None:
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._local = local
        self._lease = lease
        self._changed: set[TopicPartition] = set()
        self._notifying = False
        self.shrinks = 0
        """Accepted proposals with fewer members than before, since the start of the broker."""
        self.expands = 0

    def propose(
        self, partition: HostedPartition, leader: LeaderPartition, effect: ProposeIsr
    ) -> None:
        """Write the ISR that the leader proposes; the outcome is a step of the partition."""
        tp, epoch = partition.topic_partition, leader.leader_epoch
        isr = tuple(BrokerId(r) for r in leader.assigned_replicas if r in effect.isr)
        node = PartitionStateZNode(
            leader=BrokerId(self._local),
            leader_epoch=LeaderEpoch(epoch),
            isr=isr,
            controller_epoch=ControllerEpoch(partition.controller_epoch),
            joined_epochs={
                BrokerId(r): BrokerEpoch(joined) for r, joined in effect.joined_epochs.items()
            },
        )

        def on_reply(reply: ZkReply) -> None:
            if not _stands(partition, leader, epoch):
                return
            try:
                settle(reply)
            except Exception as error:  # noqa: BLE001 - whatever it is, the ISR is read again
                not_settled(error)

        def settle(reply: ZkReply) -> None:
            if reply.ok and reply.stat is not None:
                log.info("isr changed partition=%s isr=%s epoch=%d", tp, list(isr), epoch)
                state_change_log.info(
                    "isr changed partition=%s isr=%s leader_epoch=%d", tp, list(isr), epoch
                )
                self._count(len(isr) - len(leader.isr.members))
                self._notify(tp)
                accepted = IsrAccepted(
                    isr=effect.isr, partition_epoch=PartitionEpoch(reply.stat.version)
                )
                partition.step(accepted)
                return
            log.info("isr not changed partition=%s isr=%s: %s", tp, list(isr), reply.status)
            if reply.status is ZkStatus.BAD_VERSION:
                partition.step(IsrOutcomeUnknown())
            else:
                # Not at once: where ZooKeeper refuses every write this would never pause.
                self._scheduler.call_later(RETRY_MS, undecided)

        def not_settled(error: Exception) -> None:
            self._scheduler.call_later(RETRY_MS, undecided)
            unexpected.report(f"isr of {tp} not written", error)

        def undecided() -> None:
            if _stands(partition, leader, epoch):
                partition.step(IsrOutcomeUnknown())

        if self._lease.is_fenced:
            self._scheduler.call_later(RETRY_MS, undecided)
            return
        path = PartitionStateZNode.path(tp.topic, tp.partition)
        try:
            self._metadata_store.set(path, node.encode(), effect.partition_epoch, on_reply)
        except Exception as error:  # noqa: BLE001 - whatever it is, the proposal is not under way
            not_settled(error)

    def _count(self, more: int) -> None:
        self.shrinks += more < 0
        self.expands += more > 0

    def read_back(
        self, partition: HostedPartition, leader: LeaderPartition, retry_ms: int = RETRY_MS
    ) -> None:
        """Read the partition's state, and step the partition with it."""
        tp = partition.topic_partition
        epoch = leader.leader_epoch

        def on_reply(reply: ZkReply) -> None:
            if not _stands(partition, leader, epoch):
                return
            if not reply.ok or reply.stat is None:
                if reply.status is ZkStatus.NO_NODE:
                    lost()
                else:
                    self._scheduler.call_later(RETRY_MS, again)
                return
            try:
                state = PartitionStateZNode.decode(tp.topic, tp.partition, reply.data)
            except ZnodeFormatError as failure:
                log.error("%s", failure)
                self._scheduler.call_later(RETRY_MS, again)
                return
            observed = StateObserved(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=frozenset(state.isr),
                partition_epoch=PartitionEpoch(reply.stat.version),
            )
            before = leader.partition_epoch
            if state.leader_epoch < epoch or observed.partition_epoch < before:
                lost()
                return
            try:
                partition.step(observed)
            except Exception as error:  # noqa: BLE001 - whatever it is, the state is read again
                self._scheduler.call_later(RETRY_MS, again)
                unexpected.report(f"isr of {tp} not taken over", error)
                return
            if leader.partition_epoch > before:
                # The write was done, though its answer never came, so the controller was not
                # notified.
                self._notify(tp)

        def lost() -> None:
            """Others removed the state, or replaced it by an old one: the controller creates it
            anew, and with it another leadership."""
            self._notify(tp)
            self._scheduler.call_later(retry_ms, lambda: again(min(2 * retry_ms, RETRY_MAX_MS)))

        def again(next_ms: int = RETRY_MS) -> None:
            if _stands(partition, leader, epoch):
                self.read_back(partition, leader, next_ms)

        self._metadata_store.get(PartitionStateZNode.path(tp.topic, tp.partition), on_reply)

    def _notify(self, tp: TopicPartition) -> None:
        self._changed.add(tp)
        if not self._notifying:
            self._notifying = True
            self._scheduler.call_later(NOTIFY_DELAY_MS, self._send_notification)

    def _send_notification(self) -> None:
        changed, self._changed = tuple(sorted(self._changed)), set()
        self._notifying = False
        for start in range(0, len(changed), PARTITIONS_PER_NOTIFICATION):
            self._send_part(changed[start : start + PARTITIONS_PER_NOTIFICATION])

    def _send_part(self, changed: tuple[TopicPartition, ...]) -> None:
        def on_reply(reply: ZkReply) -> None:
            if not reply.ok:
                # The controller reads the states when it is elected, so only its view is late.
                for tp in changed:
                    self._changed.add(tp)
                if not self._notifying:
                    self._notifying = True
                    self._scheduler.call_later(RETRY_MS, self._send_notification)

        self._metadata_store.create(
            IsrChangeZNode.PREFIX,
            IsrChangeZNode(partitions=changed).encode(),
            on_reply,
            sequence=True,
            # Others may have removed the parent, which the controller waits for.
            make_parents=True,
        )


def _stands(partition: HostedPartition, leader: LeaderPartition, epoch: int) -> bool:
    """Whether this broker still leads by the same leadership."""
    return partition.leader is leader and leader.leader_epoch == epoch
