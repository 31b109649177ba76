"""Deliberate bugs, each a patch of the real code: what the simulation must find.

A mutation changes one decision and leaves the rest as it is. Its name says what is wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from simulation.run import run_seed
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.isr_writer import IsrWriter
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests import fetch_reads
from storage_engine.broker.requests.delayed_produce import AwaitedAppend
from storage_engine.broker.requests.fetch_reads import PartitionReader
from storage_engine.core.control import partition_elections
from storage_engine.core.control.cluster_state import ControlledPartition, Reassignment
from storage_engine.core.control.partition_elections import PartitionElections, offline_election
from storage_engine.core.errors import ErrorCode
from storage_engine.core.replication.partition import (
    CommittedIsr,
    FollowerProgress,
    IsrAccepted,
    LeaderPartition,
    PendingExpand,
)
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.follower_appends import FollowerAppends
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest

Apply = Callable[[ExitStack], None]
MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    MUTATIONS[apply.__name__] = apply
    return apply


@contextmanager
def mutated(apply: Apply) -> Iterator[None]:
    """The code with one bug more."""
    with ExitStack() as stack:
        apply(stack)
        yield


def failure_of(name: str, seed: int, seconds: int) -> str | None:
    """The promise that a seed finds broken under a mutation; for a process of its own."""
    with mutated(MUTATIONS[name]):
        return run_seed(seed, seconds=seconds).rule


def set_attribute(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    stack.enter_context(patch.object(owner, name, value))


@mutation
def truncate_to_the_high_watermark(stack: ExitStack) -> None:
    follow = HostedPartition.follow

    def cut_and_follow(self: Any, item: Any) -> None:
        self._keep_high_watermark()
        self.log.truncation.truncate_to(self.follower_high_watermark)
        follow(self, item)

    set_attribute(stack, HostedPartition, "follow", cut_and_follow)


@mutation
def no_truncation_at_all(stack: ExitStack) -> None:
    set_attribute(stack, fetch_reads, "_diverging", lambda *_args, **_how: None)


@mutation
def isr_without_the_pending_member(stack: ExitStack) -> None:
    set_attribute(stack, PendingExpand, "maximal", property(lambda self: self.members))


@mutation
def laggards_stay(stack: ExitStack) -> None:
    set_attribute(stack, LeaderPartition, "_shrink", lambda self, now_ms: [])


@mutation
def nobody_is_readmitted(stack: ExitStack) -> None:
    set_attribute(stack, LeaderPartition, "_expand", lambda self, replica: [])


@mutation
def acknowledged_before_the_isr_has_it(stack: ExitStack) -> None:
    def outcome(self: AwaitedAppend) -> ErrorCode | None:
        return ErrorCode.NONE if self.partition.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    set_attribute(stack, AwaitedAppend, "outcome", outcome)


@mutation
def controller_epoch_ignored(stack: ExitStack) -> None:
    refusal = OrderGate.refusal

    def refuse(self: OrderGate, order: Any, connection: Any) -> ErrorCode:
        if order.controller_epoch < self.controller_epoch:
            self.controller_epoch = order.controller_epoch
            self.controller_id = order.controller_id
            # Numbers of another controller: that guard is not the one meant.
            self.numbers.clear()
        return refusal(self, order, connection)

    set_attribute(stack, OrderGate, "refusal", refuse)


@mutation
def leader_epoch_ignored(stack: ExitStack) -> None:
    """R-CTL3: whatever LeaderAndIsr comes last is taken. Three guards are gone, the leader epoch,
    the number of the order, and the end of a connection that has brought another old order: each
    of them alone refuses an old order of the present controller."""
    apply = ReplicaManager.apply_leadership
    refusal = OrderGate.refusal

    def refuse(self: OrderGate, order: Any, connection: Any) -> ErrorCode:
        if isinstance(order, LeaderAndIsrRequest):
            self.numbers.clear()
        code = refusal(self, order, connection)
        # Of an old order that is refused so, the connection stays open.
        return ErrorCode.UNKNOWN_SERVER_ERROR if code is ErrorCode.REQUEST_TIMED_OUT else code

    def apply_any(self: Any, item: Any, endpoints: Any) -> ErrorCode:
        partition = self._partitions.get((item.topic, item.partition))
        if partition is not None and item.leader_epoch < partition.leader_epoch:
            partition.leader_epoch = item.leader_epoch - 1
        return apply(self, item, endpoints)

    set_attribute(stack, OrderGate, "refusal", refuse)
    set_attribute(stack, ReplicaManager, "apply_leadership", apply_any)


@mutation
def number_of_orders_ignored(stack: ExitStack) -> None:
    """R-CTL1: an order whose connection was given up is taken after those in its stead."""
    refusal = OrderGate.refusal

    def refuse(self: OrderGate, order: Any, connection: Any) -> ErrorCode:
        self.numbers.clear()
        return refusal(self, order, connection)

    set_attribute(stack, OrderGate, "refusal", refuse)


@mutation
def leader_epoch_of_fetches_ignored(stack: ExitStack) -> None:
    """What a fetch says to hold is believed, whatever epoch it was sent under (R-REP8). Two guards
    are gone, the epoch of the request and the comparison with that of the follower's last batch:
    each of them alone refuses an old fetch."""
    leader, note = ReplicaManager.leader, PartitionReader.note_progress

    def any_leader(self: Any, tp: Any, leader_epoch: int = -1) -> Any:
        return leader(self, tp)

    def note_any(self: Any, request: Any, partitions: Any, session: Any = None) -> bool:
        wanted = [item._replace(current_leader_epoch=-1) for item in partitions]
        return note(self, request, wanted, session)

    set_attribute(stack, ReplicaManager, "leader", any_leader)
    set_attribute(stack, PartitionReader, "note_progress", note_any)
    set_attribute(stack, fetch_reads, "_standing", lambda _partition, _wanted: (False, True))


@mutation
def progress_kept_over_a_leadership_that_was_missed(stack: ExitStack) -> None:
    """What followers held under the leader's former leadership counts on, though another has led
    in between."""
    renew = LeaderPartition.renew

    def keep(self: Any, leadership: Any, *, now_ms: int) -> Any:
        if self.leader_epoch >= 0:
            self.leader_epoch = leadership.leader_epoch - 1
        return renew(self, leadership, now_ms=now_ms)

    set_attribute(stack, LeaderPartition, "renew", keep)


@mutation
def reassignment_finished_early(stack: ExitStack) -> None:
    """R-CTL8: one new replica in sync is taken for all of them."""

    def is_caught_up(self: Any, isr: Any, live: Any) -> bool:
        return any(replica in isr for replica in self.target)

    set_attribute(stack, Reassignment, "is_caught_up", is_caught_up)


@mutation
def elected_outside_the_isr(stack: ExitStack) -> None:
    def first_alive(assigned: Any, isr: Any, live: Any, *, unclean: bool) -> Any:
        return offline_election(assigned, [b for b in assigned if b in live], live, unclean=True)

    set_attribute(stack, partition_elections, "offline_election", first_alive)


@mutation
def lost_answer_taken_for_a_refusal(stack: ExitStack) -> None:
    def read_back(self: Any, partition: Any, leader: Any) -> None:
        leader.isr = CommittedIsr(members=leader.isr.members)
        leader._advance_high_watermark()

    set_attribute(stack, IsrWriter, "read_back", read_back)


@mutation
def high_watermark_lost_on_restart(stack: ExitStack) -> None:
    set_attribute(stack, LogManager, "high_watermark", lambda self, tp: 0)


@mutation
def served_above_the_high_watermark(stack: ExitStack) -> None:
    read = fetch_reads._read

    def read_all(partition: Any, request: Any, *wanted: Any, **how: Any) -> Any:
        return read(partition, request._replace(replica_id=0), *wanted, **how)

    set_attribute(stack, fetch_reads, "_read", read_all)


@mutation
def lease_ignored(stack: ExitStack) -> None:
    set_attribute(stack, LeaderLease, "check", lambda self: None)


@mutation
def fence_ignored(stack: ExitStack) -> None:
    set_attribute(stack, LeaderLease, "fence", lambda self: None)


@mutation
def idempotent_state_not_kept_by_followers(stack: ExitStack) -> None:
    append = FollowerAppends.append

    def append_only(self: Any, records: Any) -> Any:
        with patch.object(ProducerStates, "record", lambda self, *args, **named: None):
            return append(self, records)

    set_attribute(stack, FollowerAppends, "append", append_only)


@mutation
def old_progress_of_followers_counts_for_a_new_leader(stack: ExitStack) -> None:
    begin = LeaderPartition.__init__

    def believe(self: Any, *args: Any, **named: Any) -> None:
        with patch.object(FollowerProgress.__init__, "__defaults__", (1 << 40, 0, 0, 0, None)):
            begin(self, *args, **named)

    set_attribute(stack, LeaderPartition, "__init__", believe)


@mutation
def min_insync_replicas_ignored(stack: ExitStack) -> None:
    set_attribute(stack, HostedPartition, "min_in_sync_count", property(lambda self: 1))


@mutation
def flush_before_ack_ignored(stack: ExitStack) -> None:
    set_attribute(stack, HostedPartition, "must_flush", property(lambda self: False))
    set_attribute(stack, HostedPartition, "flushed_end_offset", property(lambda self: None))


@mutation
def leader_epoch_kept_when_the_isr_shrinks(stack: ExitStack) -> None:
    """The controller's writes are told under the epoch that was there, so nobody takes them."""
    write = PartitionElections._write

    def same_epoch(self: Any, partition: Any, elected: Any) -> Any:
        made = write(self, partition, elected)
        if partition.state is None:
            return made
        return replace(made, state=replace(made.state, leader_epoch=partition.state.leader_epoch))

    set_attribute(stack, PartitionElections, "_write", same_epoch)


@mutation
def isr_answers_of_an_old_epoch_accepted(stack: ExitStack) -> None:
    """R-REP4: what ZooKeeper answers to a write of an earlier leadership changes the ISR of the
    present one. Two guards are gone, the comparison of the epochs and that of the versions: either
    alone refuses the answer."""
    propose, commit = IsrWriter.propose, LeaderPartition._commit

    def propose_and_believe(self: Any, partition: Any, leader: Any, effect: Any) -> None:
        def set_and_believe(path: str, data: bytes, version: int, on_reply: Any) -> None:
            def believe(reply: Any) -> None:
                present = partition.leader
                is_old = present is not leader or leader.leader_epoch != epoch
                if reply.ok and present is not None and is_old:
                    written = IsrAccepted(isr=effect.isr, partition_epoch=reply.stat.version)
                    partition.step(written)
                else:
                    on_reply(reply)

            metadata_store.set(path, data, version, believe)

        epoch = leader.leader_epoch
        metadata_store = self._metadata_store
        with patch.object(self, "_metadata_store", SimpleNamespace(set=set_and_believe)):
            propose(self, partition, leader, effect)

    def commit_any(self: Any, isr: Any, partition_epoch: int) -> Any:
        self.partition_epoch = min(self.partition_epoch, partition_epoch - 1)
        return commit(self, isr, partition_epoch)

    set_attribute(stack, IsrWriter, "propose", propose_and_believe)
    set_attribute(stack, LeaderPartition, "_commit", commit_any)


@mutation
def incarnations_ignored(stack: ExitStack) -> None:
    """R-CTL4: a broker that was restarted counts as if it had been there all the time: it is told
    everything, and leads on under its old epoch with the ISR that the controller knows."""
    situation = PartitionElections._situation

    def as_ever(self: Any, partition: Any) -> Any:
        return replace(situation(self, partition), bounced=frozenset())

    set_attribute(stack, PartitionElections, "_situation", as_ever)
    set_attribute(stack, ControlledPartition, "leader_has_bounced", False)


@mutation
def lost_tails_ignored(stack: ExitStack) -> None:
    set_attribute(stack, partition_elections, "suspects", lambda _state, _brokers: frozenset())
