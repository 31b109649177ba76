"""Ends the sessions of brokers whose processes are known to be dead, so that nobody has to wait for
them to expire.

Each broker puts an ephemeral znode (`SessionZNode`) of each of its sessions, and watches those of
the others:

    listed ──the process that it names runs here──► watched ──that process ends──► proven dead
                                                                                      │
        forgotten ◄── its znode is gone, because the session is ◄── session closed ◄──┘

ZooKeeper then removes what the session owned, `/brokers/ids/<id>` and `/controller` among it, and
everything goes on as if it had expired. An attempt that fails is made again while the znode is
there. Where there is no proof the session decides. Source: R-CTL12, docs/failover.md.

Across machines nobody sees a process end: `RefusedPorts` finds another proof, where
`broker.death.proof=port` asks for it.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from storage_engine.core.control.death_proof import (
    PROBE_INTERVAL_MS,
    PortVerdict,
    RefusedPort,
    closing_delay_ms,
    is_of_the_majority,
)
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import (
    Endpoint,
    ForeignSessions,
    MetadataStore,
    PeerPorts,
    PortAnswer,
    Processes,
    Scheduler,
    SessionState,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.session_credentials import SessionZNode, WatchedSession
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)


Suspects = list[str]
"""The names of a broker's sessions."""


class _Series:
    """The probes of one port, and afterwards of the other brokers' ports."""

    def __init__(self, endpoint: Endpoint, suspects: Suspects) -> None:
        self.endpoint = endpoint
        self.suspects = suspects
        self.port = RefusedPort()
        self.unheard = 0
        """The number of other brokers whose probes have no outcome yet."""
        self.answering = 0


class RefusedPorts:
    """Suspects brokers whose ports refuse connections, by a series of probes for each port.

        connection ended by the other kernel ──► probes ──all refused──► other brokers are asked
                                                   │                         │
                  a port that answers, or silence ◄┘                         └► more than half
                                                                                answer: suspected

    Suspected are the sessions that existed when the probes began, not a later one with the same id
    and port. A broker that reaches few of the others is more likely cut off than they are dead.
    """

    def __init__(
        self,
        ports: PeerPorts,
        scheduler: Scheduler,
        others: Callable[[], Sequence[Endpoint]],
    ) -> None:
        """`others`: where all other brokers of the cluster listen."""
        self._ports = ports
        self._scheduler = scheduler
        self._others = others
        self._series: dict[Endpoint, _Series] = {}
        self._asked: dict[BrokerId, Endpoint] = {}
        """The address at which each broker was last probed."""
        self._closed = False
        self._sessions_of: Callable[[BrokerId], Suspects]
        self._on_refused: Callable[[Suspects], None]

    def start(
        self,
        sessions_of: Callable[[BrokerId], Suspects],
        on_refused: Callable[[Suspects], None],
    ) -> None:
        """`sessions_of` returns a broker's sessions to suspect; `on_refused` receives them once its
        port has refused every probe."""
        self._sessions_of = sessions_of
        self._on_refused = on_refused
        self._ports.on_closed(self._connection_closed)

    def ask_again(self, broker_id: BrokerId, suspects: Suspects) -> None:
        """Begin another series of probes: what was proven some time ago may no longer be so. It
        says nothing of the broker's next session, which may be at another port."""
        endpoint = self._asked.get(broker_id)
        if endpoint is not None and not self._closed and endpoint not in self._series:
            self._begin(endpoint, suspects)

    def confirm(self, broker_id: BrokerId, on_done: Callable[[bool], None]) -> None:
        """Probe the port once more; `on_done` receives whether it still refuses."""
        endpoint = self._asked[broker_id]
        self._ports.probe(endpoint, lambda answer: on_done(answer is PortAnswer.REFUSED))

    def close(self) -> None:
        self._closed = True
        self._series.clear()

    def _connection_closed(self, endpoint: Endpoint) -> None:
        if self._closed or endpoint in self._series:
            return
        broker_id = BrokerId(endpoint.broker_id)
        suspects = self._sessions_of(broker_id)
        if suspects:
            self._asked[broker_id] = endpoint
            self._begin(endpoint, suspects)

    def _begin(self, endpoint: Endpoint, suspects: Suspects) -> None:
        series = self._series[endpoint] = _Series(endpoint, suspects)
        self._probe(series)

    def _is_over(self, series: _Series) -> bool:
        return self._closed or self._series.get(series.endpoint) is not series

    def _probe(self, series: _Series) -> None:
        if not self._is_over(series):
            self._ports.probe(series.endpoint, partial(self._probed, series))

    def _probed(self, series: _Series, answer: PortAnswer) -> None:
        if self._is_over(series):
            return
        match series.port.probed(answer):
            case PortVerdict.ASK_AGAIN:
                self._scheduler.call_later(PROBE_INTERVAL_MS, partial(self._probe, series))
            case PortVerdict.LIVES:
                del self._series[series.endpoint]
            case PortVerdict.DEAD:
                self._ask_the_others(series)

    # --- whether it is this broker that is cut off ---

    def _ask_the_others(self, series: _Series) -> None:
        known = self._others()
        asked = [each for each in known if each.broker_id != series.endpoint.broker_id]
        series.unheard = len(asked)
        heard = partial(self._heard, series, len(known) + 1)
        for endpoint in asked:
            self._ports.probe(endpoint, heard)
        if not asked:
            self._give_up(series)

    def _heard(self, series: _Series, brokers: int, answer: PortAnswer) -> None:
        if self._is_over(series):
            return
        series.unheard -= 1
        series.answering += answer is PortAnswer.ACCEPTED
        where = series.endpoint
        if is_of_the_majority(series.answering, brokers):
            del self._series[where]
            log.warning(
                "broker %d: %s:%d refuses connections", where.broker_id, where.host, where.port
            )
            self._on_refused(series.suspects)
        elif not series.unheard:
            self._give_up(series)

    def _give_up(self, series: _Series) -> None:
        del self._series[series.endpoint]
        log.warning(
            "broker %d refuses connections, but this broker reaches too few other brokers to "
            "prove that it is dead",
            series.endpoint.broker_id,
        )


RETRY_MS = 200
"""The delay after an answer without content."""
CLOSE_AGAIN_MS = 500
CLOSE_AGAIN_MAX_MS = 5_000
"""The delay before a session that still exists is closed again doubles up to this."""
MAX_SESSIONS = 1_000
"""The most session znodes that are read."""


_PARENT = SessionZNode.PARENT


class _Peer(WatchedSession):
    """The session of another broker, or a znode that is not a session."""

    def __init__(self, name: str, broker_id: BrokerId | None) -> None:
        super().__init__(name)
        self.broker_id = broker_id
        self.node: SessionZNode | None = None
        self.is_dead = False
        """Whether the broker is proven dead."""
        self.has_ended = False
        """Whether the proof is the end of its process, which is final."""


class DeadSessions:
    """One broker's view of the others' sessions. All calls and callbacks are on the loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        processes: Processes,
        foreign_sessions: ForeignSessions,
        controller_id: Callable[[], BrokerId],
        refused_ports: RefusedPorts | None,
        on_ended: Callable[[BrokerId], None] = lambda broker_id: None,
    ) -> None:
        """`controller_id`: the last known one; -1 for none. `refused_ports` None: they prove
        nothing. `on_ended`: a broker's process has ended, though its session may still exist."""
        self._broker_id = broker_id
        self._store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._processes = processes
        self._foreign_sessions = foreign_sessions
        self._controller_id = controller_id
        self._refused_ports = refused_ports
        self._on_ended = on_ended
        self._flows = Flows()
        self._watches = NewestWatches(self._flows)
        self._looks = 0
        self._peers: dict[str, _Peer] = {}
        self._own_name = ""
        self._published = 0
        """The id of the session whose znode this broker has created."""

    def start(self) -> None:
        """Publish this broker's session and watch the others'; called before it registers, so that
        its session is known as soon as it is."""
        self._store.add_state_listener(self._on_state)
        if self._refused_ports is not None:
            self._refused_ports.start(self._sessions_without_process, self._ports_refuse)
        self._begin()

    def close(self) -> None:
        """Watch and close nothing more. This broker's own znode goes with its session."""
        self._flows.close()
        if self._refused_ports is not None:
            self._refused_ports.close()
        for peer in self._peers.values():
            peer.forget()
        self._peers.clear()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self._flows.closed:
            self._begin()

    def _begin(self) -> None:
        self._looks += 1
        self._flows.start(self._publish_and_look(self._looks))

    def _is_old(self, number: int) -> bool:
        return number != self._looks or self._flows.closed

    # --- this broker's session ---

    def _publish_and_look(self, number: int) -> Flow[None]:
        """Publish first: other brokers may learn of this one only together with its session."""
        while not self._is_old(number) and self._store.session_id not in (0, self._published):
            session_id = self._store.session_id
            password = self._store.session_password
            self._own_name = SessionZNode.name(self._broker_id, session_id)
            node = SessionZNode(password=password, process=self._processes.own)
            created = yield from self._zookeeper.create(
                SessionZNode.path(self._broker_id, session_id),
                node.encode(),
                ephemeral=True,
                make_parents=True,
            )
            if created.ok or created.status is ZkStatus.NODE_EXISTS:
                self._published = session_id
            else:
                yield from pause(self._scheduler, RETRY_MS)
        yield from self._look(number)

    # --- the sessions of the others ---

    def _look(self, number: int) -> Flow[None]:
        """Read the list of sessions, and again whenever it changes."""
        while not self._is_old(number):
            watch = self._watches.newest(_PARENT, self._begin)
            listed = yield from self._zookeeper.children(_PARENT, watch)
            if self._is_old(number):
                return
            if listed.ok:
                if self._own_name not in listed.children:
                    # The session has ended, or its znode was removed.
                    self._published = 0
                    yield from pause(self._scheduler, RETRY_MS)
                    if not self._is_old(number):
                        self._begin()
                    return
                names = [each for each in listed.children if each != self._own_name]
                yield from self._compare(number, names[:MAX_SESSIONS])
                return
            yield from pause(self._scheduler, RETRY_MS)

    def _compare(self, number: int, names: list[str]) -> Flow[None]:
        for name in self._peers.keys() - set(names):
            self._peers.pop(name).forget()
        paths = {f"{_PARENT}/{name}": name for name in names if name not in self._peers}
        replies = yield from self._zookeeper.get_each(paths)
        if self._is_old(number):
            return
        is_complete = True
        for path, reply in replies.items():
            if reply.ok:
                self._peers[paths[path]] = self._met(paths[path], reply)
            elif not reply.is_absent:
                is_complete = False
        if not is_complete:
            yield from pause(self._scheduler, RETRY_MS)
            if not self._is_old(number):
                self._begin()

    def _met(self, name: str, reply: ZkReply) -> _Peer:
        """Make the peer of a new session; one whose process does not run here is not watched."""
        peer = _Peer(name, SessionZNode.broker_of(name))
        owner = reply.stat.ephemeral_owner if reply.stat else 0
        if peer.broker_id is None or name != SessionZNode.name(peer.broker_id, owner):
            log.warning("znode %s/%s ignored: it is not the session of a broker", _PARENT, name)
            return peer
        try:
            peer.node = SessionZNode.decode(name, reply.data)
        except ZnodeFormatError as problem:
            log.warning("%s", problem)
            return peer
        peer.session_id = owner
        if not peer.watch(self._processes, peer.node, partial(self._process_ended, peer)):
            log.info("broker %s: its process is not on this machine", peer.broker_id)
        return peer

    # --- the dead ---

    def _process_ended(self, peer: _Peer) -> None:
        if self._flows.closed or self._peers.get(peer.name) is not peer:
            return
        peer.forget()
        peer.has_ended = True
        if peer.broker_id is not None:
            self._on_ended(peer.broker_id)
        living = [other for other in self._peers.values() if other.process is not None]
        self._proven(peer, "its process has ended", living)

    def _sessions_without_process(self, broker_id: BrokerId) -> Suspects:
        """The sessions of a broker whose processes this broker can't watch."""
        peers = self._peers.values()
        return [p.name for p in peers if p.broker_id == broker_id and p.process is None]

    def _ports_refuse(self, suspects: Suspects) -> None:
        if self._flows.closed:
            return
        for name in suspects:
            peer = self._peers.get(name)
            if peer is not None and peer.node is not None and not peer.is_dead:
                others = [p for p in self._peers.values() if p.broker_id != peer.broker_id]
                self._proven(peer, "its port refuses connections", others)

    def _proven(self, peer: _Peer, reason: str, witnesses: Sequence[_Peer]) -> None:
        """`witnesses`: the other peers that may have the same proof."""
        peer.is_dead = True
        living = [each.broker_id for each in witnesses if each.broker_id is not None]
        delay_ms = closing_delay_ms(self._broker_id, self._controller_id(), living)
        log.warning(
            "broker %s is dead: %s, and its session is closed in %d ms",
            peer.broker_id,
            reason,
            delay_ms,
        )
        if delay_ms:
            self._scheduler.call_later(delay_ms, partial(self._close_if_still_dead, peer))
        else:
            self._close_session(peer)

    def _close_if_still_dead(self, peer: _Peer) -> None:
        """Close the session of an ended process; a port that refused is probed once more first."""
        ports, broker_id = self._refused_ports, peer.broker_id
        if self._flows.closed or self._peers.get(peer.name) is not peer:
            return
        if peer.has_ended or ports is None or broker_id is None:
            self._close_session(peer)
            return

        def confirmed(is_refused: bool) -> None:
            peer.is_dead = is_refused
            if is_refused:
                self._close_session(peer)

        ports.confirm(broker_id, confirmed)

    def _close_session(self, peer: _Peer) -> None:
        """Close the session, unless its end is known already."""
        if self._flows.closed or self._peers.get(peer.name) is not peer or peer.node is None:
            return
        peer.attempts += 1
        again_ms = min(CLOSE_AGAIN_MAX_MS, CLOSE_AGAIN_MS << min(peer.attempts - 1, 10))

        def done(_is_over: bool) -> None:
            # Also where it is over: the removal of the znode may be seen later, or it may still be
            # there because somebody else took the session over in between.
            if not self._flows.closed:
                self._scheduler.call_later(again_ms, partial(self._close_again, peer))

        self._foreign_sessions.end(peer.session_id, peer.node.password, done)

    def _close_again(self, peer: _Peer) -> None:
        if self._flows.closed or self._peers.get(peer.name) is not peer:
            return
        if peer.has_ended:
            self._close_session(peer)
        elif self._refused_ports is not None and peer.broker_id is not None:
            peer.is_dead = False
            self._refused_ports.ask_again(peer.broker_id, [peer.name])
