"""A small cluster around the real `Controller` and `LeaderPartition`, driven at random from a seed.

Fault model: a conditional write may be lost on its way, or done and its answer lost; brokers are
killed (their logs stay, as the page cache does) and come back as new incarnations, at once or after
their session's end; with `power` their machines, or all at once, lose what was not flushed;
sessions of live brokers expire; controllers are replaced at any time and do not know it at first;
deliveries and their answers get lost. Order holds within one client's requests to ZooKeeper.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from storage_engine.core.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.controller_events import (
    AssignmentChange,
    BalanceChecked,
    ControlledShutdownRequested,
    Deliver,
    Delivered,
    Delivery,
    DeliveryFailed,
    DropReassignmentRequests,
    Loaded,
    PartitionLeadership,
    StateWrite,
    TopicDeletionRequested,
    TopicsChanged,
    WriteAssignments,
)
from storage_engine.core.follower import divergence, truncation_offset
from storage_engine.core.ids import (
    TAIL_LOST_NOW,
    BrokerEpoch,
    BrokerId,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.core.partition import (
    Appended,
    Effect,
    FollowerFetched,
    IsrAccepted,
    IsrUndecided,
    LagLimits,
    LeaderPartition,
    Leadership,
    ProposeIsr,
    ReadState,
    StateObserved,
    Tick,
)
from storage_engine.tests.core.cluster_parts import (
    Broker,
    Client,
    ControllerHost,
    Replica,
    ReplicaLog,
)

LAG_MS = 100
BROKERS = (1, 2, 3, 4)


class World:
    """ZooKeeper, brokers, controllers, and what has been promised to producers."""

    def __init__(self, seed: int, *, unclean: bool = False, power: bool = False) -> None:
        self.random = random.Random(seed)
        self.power = power
        """Machines may lose their power."""
        self.cut: dict[TopicPartition, set[int]] = {}
        """Brokers whose logs may lack what was acknowledged, until somebody vouches for them."""
        self.elected_with_loss = 0
        self.faults = True
        self.silent: set[int] = set()
        """Brokers that live but fetch nothing any more."""
        self.unclean = unclean
        self.now_ms = 1
        self.numbers = 0
        self.zxid = 100
        self.controller_epoch = 0
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.to_delete: set[str] = set()
        self.targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        """What reassignments are asked for."""
        self.targets_version = 0
        self.moves_done = 0
        self.caught_up: set[TopicPartition] = set()
        """Partitions on the move whose targets have all been in sync."""
        self.registered: dict[BrokerId, BrokerInfo] = {}
        self.isr_changes: list[TopicPartition] = []
        self.brokers = {b: Broker(b) for b in BROKERS}
        self.hosts: list[ControllerHost] = []
        self.leaders_of: dict[tuple[TopicPartition, int], set[int]] = {}
        self.sent: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        """(offset, epoch, number) not acknowledged yet."""
        self.acknowledged: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for broker in self.brokers.values():
            self.start_broker(broker)
        self.create_topic("t", 3)
        self.replace_controller()

    # --- ZooKeeper ---

    def request(self, client: Client, do: Callable[[], object], on_answer) -> None:
        """`on_answer(None)`: the outcome is unknown."""

        def happen() -> None:
            fate = self.random.random() if self.faults else 1.0
            result = None if fate < 0.05 else do()
            answer = None if fate < 0.1 else result
            client.answers.append(lambda: on_answer(answer))

        client.requests.append(happen)

    def write_state(self, write: StateWrite, controller_epoch: int) -> bool:
        known = self.states.get(write.partition)
        version = None if known is None else known.partition_epoch
        if controller_epoch != self.controller_epoch or write.partition.topic not in self.topics:
            return False
        if version != write.expected_partition_epoch:
            return False
        self._check_transition(write.partition, known, write.state)
        self._note_vouched(write.partition, known, write.state)
        self.zxid += 1
        self.states[write.partition] = replace(write.state, written_zxid=self.zxid)
        self._note_caught_up(write.partition)
        return True

    def write_isr(self, tp: TopicPartition, leader: int, epoch: int, propose: ProposeIsr) -> int:
        """The new version, or -1."""
        known = self.states.get(tp)
        if known is None or known.partition_epoch != propose.partition_epoch:
            return -1
        assert (known.leader, known.leader_epoch) == (leader, epoch)
        version = known.partition_epoch + 1
        isr = tuple(BrokerId(r) for r in sorted(propose.isr))
        self.zxid += 1
        self.states[tp] = replace(
            known,
            isr=isr,
            partition_epoch=PartitionEpoch(version),
            written_zxid=self.zxid,
            joined_epochs={BrokerId(b): BrokerEpoch(e) for b, e in propose.joined_epochs.items()},
        )
        self._note_vouched(tp, known, self.states[tp])
        self._note_caught_up(tp)
        self.isr_changes.append(tp)
        return version

    def delete_topic(self, topic: str, controller_epoch: int) -> bool | None:
        if controller_epoch != self.controller_epoch:
            return None
        self.topics.pop(topic, None)
        self.to_delete.discard(topic)
        for tp in [tp for tp in self.states if tp.topic == topic]:
            del self.states[tp]
        return True

    def write_assignments(self, effect: WriteAssignments, controller_epoch: int) -> bool:
        info = self.topics.get(effect.topic)
        if info is None or controller_epoch != self.controller_epoch:
            return False
        if any(info.assigned(c.partition) != c.expected for c in effect.changes):
            return False
        for change in effect.changes:
            self._check_move(TopicPartition(effect.topic, change.partition), change)
            info = info.with_assigned(change.partition, change.wanted)
            self.caught_up.discard(TopicPartition(effect.topic, change.partition))
        self.topics[effect.topic] = info
        for change in effect.changes:
            self._note_caught_up(TopicPartition(effect.topic, change.partition))
        return True

    def _check_move(self, tp: TopicPartition, change: AssignmentChange) -> None:
        """Nobody of the ISR may be dropped, and what is dropped by a live broker is deleted."""
        state = self.states.get(tp)
        if state is not None:
            assert set(state.isr) <= set(change.wanted.replicas), f"{tp}: {state} {change}"
        if change.wanted.reassignment is None:
            self.moves_done += 1
            assert change.expected.reassignment is not None
            assert change.wanted.replicas == change.expected.reassignment.target
            back = change.expected.reassignment.is_cancellation
            assert back or tp in self.caught_up, f"{tp}: {change} before all were in sync"

    def drop_requests(
        self, effect: DropReassignmentRequests, version: int, controller_epoch: int
    ) -> bool:
        if controller_epoch != self.controller_epoch:
            return True
        if version != self.targets_version:
            return False
        for tp, (target, why) in effect.requests.items():
            if self.targets.get(tp) == target:
                del self.targets[tp]
                info = self.topics.get(tp.topic)
                assert why or (info is not None and info.assignment[tp.partition] == target)
        self.targets_version += 1
        return True

    def _note_caught_up(self, tp: TopicPartition) -> None:
        state, info = self.states.get(tp), self.topics.get(tp.topic)
        move = info.reassignments.get(tp.partition) if info is not None else None
        if move is not None and state is not None and set(move.target) <= set(state.isr):
            self.caught_up.add(tp)

    def _check_transition(self, tp, old: PartitionState | None, new: PartitionState) -> None:
        assigned = self.topics[tp.topic].assignment[tp.partition]
        assert new.isr, f"{tp}: the ISR is empty"
        assert set(new.isr) <= set(assigned), f"{tp}: the ISR has others than replicas"
        assert new.leader == -1 or new.leader in new.isr
        if old is not None:
            assert new.leader_epoch > old.leader_epoch
            if not self.unclean:
                assert set(new.isr) <= set(old.isr), f"{tp}: {old} -> {new}"
                assert new.leader == -1 or new.leader in old.isr, f"{tp}: unclean leader"

    def _note_vouched(self, tp, old: PartitionState | None, new: PartitionState) -> None:
        """Decision 4: who may have lost its tail leads only where no other member of the last ISR
        may return; what was acknowledged before and is not in its log is lost then."""
        cut = self.cut.setdefault(tp, set())
        if old is None:
            # Chosen by a controller that had not heard of the loss yet.
            cut.update(
                member
                for member in new.isr
                if self.brokers[member].tail_lost_epoch
                not in range(new.joined_epochs.get(member, 0) + 1)
            )
        vouched = set()
        for member in cut.intersection(new.isr):
            lost_epoch = self.brokers[member].tail_lost_epoch
            if lost_epoch > 0 and new.joined_epochs.get(BrokerId(member), 0) >= lost_epoch:
                vouched.add(member)
        if new.leader in vouched and old is not None and not self.unclean:
            better = set(old.isr) - cut
            assert not better, f"{tp}: {new.leader} lost its tail, {better} did not: {old} {new}"
            self.elected_with_loss += 1
            records = self.brokers[new.leader].logs.get(tp, ReplicaLog()).records
            self.acknowledged[tp] = [
                (offset, epoch, number)
                for offset, epoch, number in self.acknowledged.get(tp, ())
                if records[offset : offset + 1] == [(epoch, number)]
            ]
        cut -= vouched

    # --- happenings ---

    def start_broker(self, broker: Broker) -> None:
        broker.start()
        self.register(broker)

    def register(self, broker: Broker) -> None:
        self.zxid += 1
        broker.epoch = self.zxid
        broker.fenced = True
        if broker.tail_lost_epoch == TAIL_LOST_NOW:
            broker.tail_lost_epoch = BrokerEpoch(self.zxid)
        self.registered[BrokerId(broker.id)] = BrokerInfo(
            broker_id=BrokerId(broker.id),
            host="h",
            port=1,
            epoch=BrokerEpoch(self.zxid),
            tail_lost_epoch=broker.tail_lost_epoch,
        )
        self._brokers_changed()

    def unregister(self, broker: Broker) -> None:
        if self.registered.pop(BrokerId(broker.id), None):
            self._brokers_changed()

    def _brokers_changed(self) -> None:
        for host in self.hosts[-1:]:
            host.look_at_brokers()

    def kill(self, broker: Broker) -> None:
        for tp, replica in broker.replicas.items():
            if replica.leading is not None and tp in broker.logs:
                broker.logs[tp].high_watermark = replica.leading.high_watermark
        broker.up = False

    def lose_power(self, broker: Broker) -> None:
        """Its process dies with it, if it runs."""
        if broker.up:
            self.kill(broker)
        broker.tail_lost_epoch = TAIL_LOST_NOW
        for log in broker.logs.values():
            log.cut_to(self.random.randint(log.flushed, log.end))
            log.flushed = log.end
        # Also where it has no log yet: nobody can tell that from one that was lost.
        for tp in broker.logs.keys() | self.states.keys():
            self.cut.setdefault(tp, set()).add(broker.id)

    def replace_controller(self) -> None:
        self.controller_epoch += 1
        host = ControllerHost(self, self.controller_epoch)
        self.hosts = [*self.hosts[-1:], host]
        host.step(
            Loaded(
                brokers=dict(self.registered),
                topics=dict(self.topics),
                states=dict(self.states),
                deleting=tuple(self.to_delete),
            )
        )
        host.look_at_requests()

    def create_topic(self, name: str, partitions: int) -> None:
        self.numbers += 1
        assignment = {
            p: tuple(BrokerId(BROKERS[(p + j) % len(BROKERS)]) for j in range(3))
            for p in range(partitions)
        }
        self.topics[name] = TopicInfo(
            topic=name,
            topic_id=UUID(int=self.numbers),
            assignment=assignment,
            unclean_election=self.unclean,
        )
        self.tell(TopicsChanged(topics={name: self.topics[name]}))

    def request_deletion(self, name: str) -> None:
        self.to_delete.add(name)
        self.tell(TopicDeletionRequested(topics=(name,)))

    def request_move(self, tp: TopicPartition, target: tuple[int, ...]) -> None:
        self.targets[tp] = tuple(BrokerId(b) for b in target)
        self.targets_version += 1
        for host in self.hosts[-1:]:
            host.look_at_requests()

    def _random_move(self) -> None:
        """To any brokers, or back."""
        tp = self.random.choice(sorted(self.states) or [TopicPartition("t", 0)])
        info = self.topics.get(tp.topic)
        move = info.reassignments.get(tp.partition) if info is not None else None
        if move is not None and self.random.random() < 0.3:
            self.request_move(tp, move.original)
            return
        count = self.random.choice((1, 2, 3, 3))
        self.request_move(tp, tuple(self.random.sample(BROKERS, count)))

    def tell(self, event) -> None:
        for host in self.hosts[-1:]:
            host.step(event)

    # --- deliveries ---

    def deliver(self, host: ControllerHost, effect: Deliver) -> None:
        host.deliveries.remove(effect)
        broker = self.brokers[effect.broker]
        fate = self.random.random() if self.faults else 1.0
        taken = fate > 0.1 and self._apply(broker, host.core.controller_epoch, effect.delivery)
        if taken and fate > 0.2:
            host.step(Delivered(broker=effect.broker, delivery=effect.delivery))
        else:
            host.step(DeliveryFailed(broker=effect.broker, delivery=effect.delivery))

    def _apply(self, broker: Broker, controller_epoch: int, delivery: Delivery) -> bool:
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
            self.lead(broker, tp, leading.step(Tick(now_ms=self.now_ms, log_end_offset=end)))

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
                self.lead(broker, tp, leading.step(IsrUndecided()))
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

    # --- one random happening, and what must hold after it ---

    def happen(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self._zookeeper_turn()
        elif chance < 0.4:
            self._delivery_turn()
        elif chance < 0.93:
            self._broker_turn()
        elif chance < 0.95:
            self.now_ms += self.random.randint(1, LAG_MS)
        elif chance < 0.96 and self.isr_changes:
            self.notify()
        elif self.faults:
            self._trouble()
        self.check()

    def notify(self) -> None:
        changed, self.isr_changes = set(self.isr_changes), []
        self.hosts[-1].read(sorted(changed))

    def _zookeeper_turn(self) -> None:
        clients = [h.client for h in self.hosts]
        clients += [b.client for b in self.brokers.values() if b.up]
        queues = [q for c in clients for q in (c.requests, c.answers) if q]
        if queues:
            self.random.choice(queues).popleft()()

    def _delivery_turn(self) -> None:
        under_way = [(host, effect) for host in self.hosts for effect in host.deliveries]
        if under_way:
            self.deliver(*self.random.choice(under_way))

    def _broker_turn(self) -> None:
        broker = self.random.choice([b for b in self.brokers.values() if b.up] or [None])
        if broker is None or not broker.replicas:
            return
        tp = self.random.choice(sorted(broker.replicas))
        self.random.choice((self.append, self.fetch, self.fetch, self.fetch, self.tick))(broker, tp)

    def _trouble(self) -> None:
        if self.power and self.random.random() < 0.3:
            self._power_trouble()
            return
        broker = self.random.choice(list(self.brokers.values()))
        match self.random.randint(0, 11):
            case 10 | 11:
                self._random_move()
            case 0 | 1 if broker.up:
                self.kill(broker)
            case 2 if not broker.up:
                self.unregister(broker)
            case 3 | 4 | 5 if not broker.up:
                self.start_broker(broker)
            case 6 if broker.up:
                self.unregister(broker)
                broker.fenced = True
                self.register(broker)
            case 7:
                self.replace_controller()
            case 8:
                epoch = BrokerEpoch(broker.epoch)
                asked = ControlledShutdownRequested(broker=BrokerId(broker.id), broker_epoch=epoch)
                self.tell(self.random.choice((asked, BalanceChecked(percentage=0))))
            case 9:
                self._topic_trouble()

    def _power_trouble(self) -> None:
        brokers = list(self.brokers.values())
        chance = self.random.random()
        if chance < 0.6:
            # Many at once, or an ISR of one is all that is left when the power goes.
            for broker in self.random.sample(brokers, self.random.choice((1, 2, 3, 4, 4))):
                if self.random.random() < 0.6:
                    self.lose_power(broker)
                elif broker.up:
                    self.kill(broker)
            return
        for log in self.random.choice(brokers).logs.values():
            log.flushed = log.end

    def _topic_trouble(self) -> None:
        if "u" not in self.topics:
            self.create_topic("u", 2)
            self.acknowledged = {
                tp: done for tp, done in self.acknowledged.items() if tp.topic != "u"
            }
            self.sent = {tp: sent for tp, sent in self.sent.items() if tp.topic != "u"}
            self.cut = {tp: cut for tp, cut in self.cut.items() if tp.topic != "u"}
            self.leaders_of = {
                key: held for key, held in self.leaders_of.items() if key[0].topic != "u"
            }
        else:
            self.request_deletion("u")

    def check(self) -> None:
        for tp, state in self.states.items():
            if tp.topic in self.to_delete:
                continue
            assert state.isr
            if self.unclean:
                continue
            for offset, epoch, number in self.acknowledged.get(tp, ()):
                for member in set(state.isr) - self.cut.get(tp, set()):
                    records = self.brokers[member].logs[tp].records
                    assert records[offset : offset + 1] == [(epoch, number)], (
                        f"{tp}: acknowledged record {number} at {offset} is not on {member}"
                    )

    # --- the faults stop ---

    def settle(self) -> None:
        """Everybody is back; run until nothing is left to do."""
        self.faults = False
        for broker in self.brokers.values():
            if not broker.up:
                self.start_broker(broker)
        self.replace_controller()
        self.run_quietly(60)

    def run_quietly(self, rounds: int) -> None:
        for _ in range(rounds):
            self._quiet_round()
            self.now_ms += LAG_MS
            if self.isr_changes:
                self.notify()

    def _quiet_round(self) -> None:
        for _ in range(3):
            for host in self.hosts:
                self._drain(host.client)
                for effect in list(host.deliveries):
                    self.deliver(host, effect)
            for broker in self.brokers.values():
                self._drain(broker.client)
                for tp in list(broker.replicas):
                    if broker.id not in self.silent:
                        self.fetch(broker, tp)
                    self.tick(broker, tp)
                self._drain(broker.client)

    def _drain(self, client: Client) -> None:
        for _ in range(200):
            queue = client.requests or client.answers
            if not queue:
                return
            queue.popleft()()
        raise AssertionError("requests to ZooKeeper never come to an end")

    def check_laggards_leave(self, laggard: int) -> None:
        """After `settle`: a follower that is silent leaves, acks go on, and it returns."""
        led_elsewhere = [
            tp
            for tp, state in self.states.items()
            if laggard in state.isr and state.leader != laggard
        ]
        self.silent = {laggard}
        for tp in led_elsewhere:
            self.append(self.brokers[self.states[tp].leader], tp)
        self.run_quietly(10)
        for tp in led_elsewhere:
            assert laggard not in self.states[tp].isr, f"{tp}: {laggard} is silent but in sync"
            leader = self.brokers[self.states[tp].leader]
            leading = leader.replicas[tp].leading
            assert leading is not None
            assert leading.high_watermark == leader.logs[tp].end, f"{tp} waits for {laggard}"
        self.silent = set()
        self.run_quietly(20)
        self.check_settled()

    def check_settled(self) -> None:
        self.check()
        assert not self.to_delete
        assert not self.targets, f"never done: {self.targets}"
        for topic, info in self.topics.items():
            assert not info.reassignments, f"still on the move: {info}"
            for partition, assigned in info.assignment.items():
                tp = TopicPartition(topic, partition)
                state = self.states[tp]
                assert state.leader in assigned, f"{tp} has no leader: {state}"
                assert set(state.isr) == set(assigned), f"{tp}: {state} of {assigned}"
                leader = self.brokers[state.leader]
                for broker_id in assigned:
                    replica = self.brokers[broker_id].replicas[tp]
                    assert replica.leader_epoch == state.leader_epoch, f"{tp} on {broker_id}"
                    log = self.brokers[broker_id].logs[tp]
                    assert log.records == leader.logs[tp].records, f"{tp} differs on {broker_id}"
                leading = leader.replicas[tp].leading
                assert leading is not None
                assert not leader.fenced
                assert leading.high_watermark == leader.logs[tp].end, f"{tp}: uncommitted records"
        for broker in self.brokers.values():
            extra = {
                tp
                for tp in broker.logs
                if tp.topic not in self.topics
                or broker.id not in self.topics[tp.topic].assignment[tp.partition]
            }
            assert not extra, f"broker {broker.id} still has {extra}"
