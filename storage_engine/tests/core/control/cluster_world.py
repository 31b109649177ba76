"""A small cluster around the real `Controller` and `LeaderPartition`, driven at random from a seed.

Fault model: a conditional write may be lost on its way, or done and its answer lost; brokers are
killed (their logs stay, as the page cache does) and come back as new incarnations, at once or after
their session's end; with `power` their machines, or all at once, lose what was not flushed;
sessions of live brokers expire; controllers are replaced at any time and do not know it at first;
deliveries and their answers get lost. Order holds within one client's requests to ZooKeeper.
"""

from uuid import UUID

from storage_engine.core.control.cluster_state import BrokerInfo, TopicInfo
from storage_engine.core.control.controller_events import (
    BalanceChecked,
    ControlledShutdownRequested,
    Loaded,
    TopicDeletionRequested,
    TopicsRead,
)
from storage_engine.core.ids import (
    TAIL_LOST_NOW,
    BrokerEpoch,
    BrokerId,
    TopicPartition,
)
from storage_engine.tests.core.control.cluster_parts import (
    Broker,
    Client,
    ControllerHost,
)
from storage_engine.tests.core.control.cluster_replication import WorldReplication
from storage_engine.tests.core.control.cluster_zookeeper import BROKERS, LAG_MS


class World(WorldReplication):
    """ZooKeeper, brokers, controllers, and what has been promised to producers."""

    def __init__(self, seed: int, **options) -> None:
        super().__init__(seed, **options)
        for broker in self.brokers.values():
            self.start_broker(broker)
        self.create_topic("t", 3)
        self.replace_controller()

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
        self.tell(TopicsRead(topics={name: self.topics[name]}))

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
