"""The checks of who closes whose session with ZooKeeper."""

from simulation.checks.ledger import InvariantViolation
from simulation.checks.trace import Trace
from simulation.world.cluster import SimulatedCluster


class ClosedSessions:
    """The sessions of one cluster that others than their owners have closed."""

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace
        self.may_be_mistaken = False
        """Whether brokers may count a living broker as dead (`broker.death.proof=port`). Watchers
        never may."""
        self.of_the_dead = 0
        """The number of sessions of dead brokers that others have closed."""
        self.by_watchers = 0
        """The number of these that their brokers' watchers have closed."""
        self.deposed: set[int] = set()
        """Sessions that other brokers have closed while the owners lived. Until its lease ends or
        it is notified, an owner may append records that no other broker gets: to acks=1 nothing is
        promised over a change of leaders."""

    def closed(self, session_id: int, by_watcher: bool) -> None:
        """Check that a live session that is being closed is one of the dead."""
        for broker in self._cluster.brokers:
            if broker.up and broker.session.session_id == session_id:
                if by_watcher or not self.may_be_mistaken:
                    raise InvariantViolation(
                        "no living broker is taken for dead", f"broker {broker.id}"
                    )
                self._trace.note(f"broker {broker.id} lives, and its session is closed")
                self.deposed.add(session_id)
                return
        self.of_the_dead += 1
        self.by_watchers += by_watcher
        who = "its watcher" if by_watcher else "another broker"
        self._trace.note(f"session {session_id} of a dead broker is closed by {who}")

    def watcher_done(self, session_id: int) -> None:
        """Check that a session is gone which a watcher counts as closed."""
        if session_id in self._cluster.zookeeper.live:
            raise InvariantViolation(
                "a watcher ends once the session is gone", f"session {session_id} lives"
            )
