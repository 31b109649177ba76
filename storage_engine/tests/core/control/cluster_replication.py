"""How the brokers of a random cluster are told who leads, and replicate."""

from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.control.controller_events import (
    Deliver,
    DeliveryFailed,
    DeliveryMade,
    OrderDelivery,
    PartitionLeadership,
)
from storage_engine.core.ids import (
    BrokerId,
    TopicPartition,
)
from storage_engine.core.replication.leader_epochs import divergence, truncation_offset
from storage_engine.core.replication.partition import (
    Appended,
    Effect,
    FollowerFetched,
    IsrAccepted,
    IsrOutcomeUnknown,
    LagCheck,
    LagLimits,
    LeaderPartition,
    Leadership,
    ProposeIsr,
    ReadState,
    StateObserved,
)
from storage_engine.tests.core.control.cluster_parts import (
    Broker,
    ControllerHost,
    Replica,
    ReplicaLog,
)
from storage_engine.tests.core.control.cluster_zookeeper import LAG_MS, WorldZooKeeper


class WorldReplication(WorldZooKeeper):
    """Brokers that take deliveries, append, fetch and propose ISRs."""

    # --- deliveries ---

    def deliver(self, host: ControllerHost, effect: Deliver) -> None:
        host.deliveries.remove(effect)
        broker = self.brokers[effect.broker]
        fate = self.random.random() if self.faults else 1.0
        taken = fate > 0.1 and self._apply(broker, host.core.controller_epoch, effect.delivery)
        if taken and fate > 0.2:
            host.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
        else:
            host.step(DeliveryFailed(broker=effect.broker, delivery=effect.delivery))

    def _apply(self, broker: Broker, controller_epoch: int, delivery: OrderDelivery) -> bool:
        if not broker.up or delivery.broker_epoch != broker.epoch:
            return False
        if controller_epoch < broker.highest_controller_epoch:
            return False
        broker.highest_controller_epoch = controller_epoch
        for item in delivery.leadership:
            self._apply_leadership(broker, item)
        if delivery.full:
            named = {item.partition for item in delivery.leadership}
            for tp in [tp for tp in broker.replicas if tp not in named]:
                del broker.replicas[tp]
            for known in delivery.metadata:
                if broker.id not in known.assigned:
                    broker.logs.pop(known.partition, None)
            # ZooKeeper is asked what became of the others.
            for tp in [tp for tp in broker.logs if tp not in named]:
                if tp.topic not in self.topics:
                    del broker.logs[tp]
            broker.fenced = False
        for tp in delivery.stop:
            broker.replicas.pop(tp, None)
            broker.logs.pop(tp, None)
        return True

    def _apply_leadership(self, broker: Broker, item: PartitionLeadership) -> None:
        tp, state = item.partition, item.state
        replica = broker.replicas.setdefault(tp, Replica())
        if state.leader_epoch <= replica.leader_epoch:
            return
        log = broker.logs.setdefault(tp, ReplicaLog())
        replica.leader_epoch, replica.leader_id = state.leader_epoch, state.leader
        if state.leader != broker.id:
            if replica.leading is not None:
                log.high_watermark = replica.leading.high_watermark
            replica.leading = None
            return
        holders = self.leaders_of.setdefault((tp, state.leader_epoch), set())
        holders.add(broker.id)
        assert len(holders) == 1, f"{tp} epoch {state.leader_epoch} is led by {holders}"
        log.epochs.assign(state.leader_epoch, log.end)
        leadership = Leadership(
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=frozenset(state.isr),
            assigned_replicas=item.assigned,
            joined_epochs={int(b): int(epoch) for b, epoch in state.joined_epochs.items()},
        )
        if replica.leading is None:
            replica.leading = LeaderPartition(
                leadership,
                local=broker.id,
                log_end_offset=log.end,
                high_watermark=log.high_watermark,
                now_ms=self.now_ms,
                limits=LagLimits(lag_max_ms=LAG_MS),
            )
            self.lead(broker, tp, [])
        else:
            self.lead(broker, tp, replica.leading.renew(leadership, now_ms=self.now_ms))

    # --- data ---

    def append(self, broker: Broker, tp: TopicPartition) -> None:
        replica = broker.replicas[tp]
        if replica.leading is None or broker.fenced:
            return
        self.numbers += 1
        log = broker.logs[tp]
        self.sent.setdefault(tp, []).append((log.end, replica.leader_epoch, self.numbers))
        log.records.append((replica.leader_epoch, self.numbers))
        self.lead(broker, tp, replica.leading.step(Appended(log_end_offset=log.end)))

    def fetch(self, broker: Broker, tp: TopicPartition) -> None:
        replica = broker.replicas[tp]
        leader = self.brokers.get(replica.leader_id)
        if replica.leading is not None or leader is None or not leader.up:
            return
        led = leader.replicas.get(tp)
        if led is None or led.leading is None or led.leader_epoch != replica.leader_epoch:
            return
        mine, theirs = broker.logs[tp], leader.logs[tp]
        diverging = divergence(
            theirs.epochs,
            log_end_offset=theirs.end,
            fetch_offset=mine.end,
            last_fetched_epoch=mine.epochs.latest_epoch,
        )
        if diverging is not None:
            cut = truncation_offset(
                mine.epochs,
                log_end_offset=mine.end,
                diverging_epoch=diverging[0],
                leader_end_offset=diverging[1],
            )
            mine.cut_to(cut)
            return
        info = self.registered.get(BrokerId(broker.id))
        event = FollowerFetched(
            replica=broker.id,
            fetch_offset=mine.end,
            log_end_offset=theirs.end,
            now_ms=self.now_ms,
            eligible=info is not None and info.epoch == broker.epoch,
            broker_epoch=broker.epoch,
        )
        self.lead(leader, tp, led.leading.step(event))
        for epoch, number in theirs.records[mine.end : mine.end + self.random.randint(1, 4)]:
            if epoch != mine.epochs.latest_epoch:
                mine.epochs.assign(epoch, mine.end)
            mine.records.append((epoch, number))
        mine.high_watermark = min(mine.end, led.leading.high_watermark)

    def tick(self, broker: Broker, tp: TopicPartition) -> None:
        leading = broker.replicas[tp].leading
        if leading is not None:
            end = broker.logs[tp].end
            self.lead(broker, tp, leading.step(LagCheck(now_ms=self.now_ms, log_end_offset=end)))

    def lead(self, broker: Broker, tp: TopicPartition, effects: list[Effect]) -> None:
        """Carry out a leader's effects; acknowledge what its high watermark covers."""
        leading = broker.replicas[tp].leading
        assert leading is not None
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self._propose(broker, tp, leading, effect)
            elif isinstance(effect, ReadState):
                self._read_back(broker, tp, leading)
        records = broker.logs[tp].records
        waiting = []
        for sent in self.sent.get(tp, []):
            offset, epoch, number = sent
            is_here = offset < len(records) and records[offset] == (epoch, number)
            if is_here and offset < leading.high_watermark and not broker.fenced:
                self.acknowledged.setdefault(tp, []).append(sent)
            else:
                waiting.append(sent)
        self.sent[tp] = waiting

    def _stands(self, broker: Broker, tp: TopicPartition, leading, epoch: int) -> bool:
        replica = broker.replicas.get(tp)
        return replica is not None and replica.leading is leading and leading.leader_epoch == epoch

    def _propose(self, broker, tp, leading: LeaderPartition, propose: ProposeIsr) -> None:
        epoch = leading.leader_epoch

        def answered(version: int | None) -> None:
            if not self._stands(broker, tp, leading, epoch):
                return
            if version is None or version < 0:
                self.lead(broker, tp, leading.step(IsrOutcomeUnknown()))
            else:
                accepted = IsrAccepted(isr=propose.isr, partition_epoch=version)
                self.lead(broker, tp, leading.step(accepted))

        self.request(broker.client, lambda: self.write_isr(tp, broker.id, epoch, propose), answered)

    def _read_back(self, broker, tp, leading: LeaderPartition) -> None:
        epoch = leading.leader_epoch

        def answered(state: PartitionState | str | None) -> None:
            if not self._stands(broker, tp, leading, epoch) or state == "no node":
                return
            if state is None:
                self._read_back(broker, tp, leading)
                return
            assert isinstance(state, PartitionState)
            observed = StateObserved(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=frozenset(state.isr),
                partition_epoch=state.partition_epoch,
            )
            self.lead(broker, tp, leading.step(observed))

        self.request(broker.client, lambda: self.states.get(tp, "no node"), answered)
