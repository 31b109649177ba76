"""Compound faults: several faults at just the wrong moments, one after another.

A script is a generator; each condition that it yields is waited for, and it ends, wherever it is,
when the fault's time is over. In the end it releases everything that it holds up. Each script tests
one rule that single faults at random times hardly ever reach: old fetches, old answers of
ZooKeeper, leaderships that a leader missed, restarts that the controller must notice.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from simulation.faults.faults import FaultKind
from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

Condition = Callable[[], bool]
Script = Generator[Condition, None, None]

SETTLE_MS = 60
"""The time for messages under way to arrive."""
NOTICED_MS = 300
"""The time for the controller to be notified of another ISR and to read it."""
UNNOTICED_MS = 400
"""A time longer than a restarted broker takes to register again."""


class Cast(NamedTuple):
    """The replicas of a partition in their roles."""

    preferred: int
    leader: int
    """The first leader."""
    other: int


class Scene:
    """The conditions and actions of scripts."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        tp: TopicPartition,
        restart: Callable[[SimulatedBroker], None],
        order: Callable[[], None],
    ) -> None:
        """`restart` kills a broker and starts it again at once; `order` makes the controller send
        an order to all brokers."""
        self.cluster = cluster
        self.tp = tp
        self._restart = restart
        self.order = order
        self._path = PartitionStateZNode.path(tp.topic, tp.partition)
        self._read: tuple[bytes, PartitionStateZNode] | None = None
        """The state that was read last, since conditions are checked again and again."""

    def state(self) -> PartitionStateZNode | None:
        data = self.cluster.zookeeper.data(self._path)
        if data is None:
            return None
        if self._read is None or self._read[0] is not data:
            state = PartitionStateZNode.decode(self.tp.topic, self.tp.partition, data)
            self._read = data, state
        return self._read[1]

    def cast(self) -> Cast | None:
        """Return the roles; None when there are not three replicas."""
        data = self.cluster.zookeeper.data(TopicZNode.path(self.tp.topic))
        if data is None:
            return None
        replicas = TopicZNode.decode(self.tp.topic, data).assignment.get(self.tp.partition, ())
        return Cast(*replicas[:3]) if len(replicas) >= 3 else None

    def leads(self, leader: int, *in_sync: int) -> Condition:
        """Return the condition that ZooKeeper names this leader and ISR."""

        def check() -> bool:
            state = self.state()
            return state is not None and state.leader == leader and {*in_sync} <= {*state.isr}

        return check

    def has_leadership(self, broker: int) -> Condition:
        """Return the condition that the broker has received the newest leadership."""

        def check() -> bool:
            state, partition = self.state(), self._hosted(broker)
            return (
                state is not None
                and partition is not None
                and partition.leader_epoch == state.leader_epoch
            )

        return check

    def end(self, broker: int) -> int:
        """Return the end of the broker's log; -1 when it has none now."""
        partition = self._hosted(broker)
        return -1 if partition is None else partition.log.log_end_offset

    def _hosted(self, broker: int) -> HostedPartition | None:
        running = self.cluster[broker]
        return running.replicas.get(self.tp) if running.serving else None

    def after(self, ms: int) -> Condition:
        due_ms = self.cluster.loop.now_ms + ms
        return lambda: self.cluster.loop.now_ms >= due_ms

    def restart(self, broker: int) -> None:
        running = self.cluster[broker]
        if running.serving and not running.loop.paused:
            self._restart(running)

    def elect_preferred(self) -> None:
        if self.cluster.controller is not None:
            self.cluster.elect_preferred(self.tp)

    def acts(self, *brokers: int) -> bool:
        """Return True when one of them is the controller."""
        controller = self.cluster.controller
        return controller is None or controller.id in brokers

    @contextmanager
    def held_up(self, *directions: tuple[int, int]) -> Iterator[None]:
        """Hold messages up, in order, within a `with` block."""
        network = self.cluster.network
        network.held_up |= {*directions}
        try:
            yield
        finally:
            network.held_up -= {*directions}
            network.release()

    def waits(self, direction: tuple[int, int]) -> Condition:
        """Return the condition that a message is held up."""
        network = self.cluster.network
        return lambda: any(pipe.direction == direction for pipe in network.waiting)

    def begin(self, cast: Cast) -> Script:
        """Reach the beginning of a script: the second replica leads, all three are in sync, and the
        first one is preferred."""
        if not self.leads(cast.leader)():
            if not self.leads(cast.preferred)():
                self.elect_preferred()
                yield self.leads(cast.preferred, *cast)
            self.restart(cast.preferred)
        yield self.leads(cast.leader, *cast)
        yield self.has_leadership(cast.leader)

    def leave_control(self, *brokers: int) -> Script:
        """Have another broker become the controller: these learn too late that the node is gone."""
        if not self.acts(*brokers):
            return
        with ExitStack() as late:
            for broker in brokers:
                late.enter_context(self.delayed_watches(broker, NOTICED_MS))
            if self.cluster.zookeeper.data(ControllerZNode.PATH) is not None:
                self.cluster.zookeeper.drop(ControllerZNode.PATH)
            yield lambda: not self.acts(*brokers)

    @contextmanager
    def delayed_watches(self, broker: int, delay_ms: int) -> Iterator[None]:
        """Delay what ZooKeeper sends to the broker from now on, within a `with` block."""
        session = self.cluster[broker].session
        usual = session.hear_delay_ms
        session.hear_delay_ms = lambda: delay_ms
        try:
            yield
        finally:
            session.hear_delay_ms = usual


def stale_fetches(scene: Scene, cast: Cast) -> Script:
    """The leader changes twice while a follower's fetch is under way, and the follower, which still
    has a record that its leader lacks by now, is counted as in sync."""
    preferred, leader, other = cast
    yield from scene.begin(cast)
    with scene.held_up((preferred, leader)):
        yield scene.waits((preferred, leader))
        # The other broker has a record that the preferred one lacks.
        yield lambda: scene.end(other) > scene.end(preferred) >= 0
        with scene.held_up((other, leader), (other, preferred)):
            yield scene.waits((other, leader))
            claimed = scene.end(other)
            scene.elect_preferred()
            yield scene.leads(preferred)
            yield scene.has_leadership(leader)
            yield scene.after(SETTLE_MS)
            scene.restart(preferred)
            yield scene.leads(leader)
            yield scene.has_leadership(leader)
            yield lambda: scene.end(leader) >= claimed
    yield scene.after(SETTLE_MS)


def missed_leadership(scene: Scene, cast: Cast) -> Script:
    """The leader misses the leadership of another between two of its own, in which a follower
    truncates its log."""
    preferred, leader, other = cast
    yield from scene.begin(cast)
    yield lambda: not scene.acts(preferred)
    controller = scene.cluster.controller
    assert controller is not None
    with scene.held_up((preferred, leader)):
        yield scene.waits((preferred, leader))
        yield lambda: scene.end(other) > scene.end(preferred) >= 0
        yield scene.after(2)
        with scene.held_up((controller.id, leader), (other, leader)):
            scene.order()
            yield scene.waits((controller.id, leader))
            scene.elect_preferred()
            yield scene.leads(preferred)
            yield scene.has_leadership(other)
            yield scene.after(SETTLE_MS)
            scene.restart(preferred)
            yield scene.leads(leader)
            yield scene.after(SETTLE_MS)
    yield scene.after(SETTLE_MS)


def stale_answers(scene: Scene, cast: Cast) -> Script:
    """ZooKeeper's answer to a leader that removes a follower from the ISR comes after another
    broker has led, has admitted the follower again, and has handed the leadership back."""
    preferred, leader, other = cast
    yield from scene.begin(cast)
    # Orders to any of them would wait as well.
    yield from scene.leave_control(*cast)
    session = scene.cluster[leader].session
    with scene.held_up((other, leader)):
        # The delay is long, but not so long that the session ends.
        with scene.delayed_watches(leader, session.timeout_ms * 3 // 4):
            yield lambda: not scene.leads(leader, other)()
            if not scene.leads(leader)():
                return
        scene.elect_preferred()
        yield scene.leads(preferred, other)
        scene.restart(preferred)
        yield scene.leads(leader, other)
        yield scene.has_leadership(leader)
        yield scene.after(session.timeout_ms)


def unnoticed_restart(scene: Scene, cast: Cast) -> Script:
    """The leader restarts when it has just admitted a follower, before any other broker knows. The
    controller learns of the restart when the leader is back, and the follower can't fetch."""
    _, leader, other = cast
    yield from scene.begin(cast)
    yield from scene.leave_control(leader, other)
    with scene.held_up((other, leader)):
        yield lambda: not scene.leads(leader, other)()
        # This is the time for the controller to read it.
        yield scene.after(NOTICED_MS)
    yield scene.leads(leader, other)
    controller = scene.cluster.controller
    if controller is None or controller.id in (leader, other):
        return
    with scene.held_up((other, leader)):
        with scene.delayed_watches(controller.id, UNNOTICED_MS):
            scene.restart(leader)
            yield scene.after(UNNOTICED_MS)
        yield scene.after(SESSION_TIMEOUT_MS // 4)


SCRIPTS: dict[FaultKind, Callable[[Scene, Cast], Script]] = {
    FaultKind.STALE_FETCHES: stale_fetches,
    FaultKind.MISSED_LEADERSHIP: missed_leadership,
    FaultKind.STALE_ANSWERS: stale_answers,
    FaultKind.UNNOTICED_RESTART: unnoticed_restart,
}
