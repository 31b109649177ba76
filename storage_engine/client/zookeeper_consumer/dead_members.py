"""Ends the sessions of members whose processes are known to be dead, so that nobody has to wait for
them to expire.

Each member puts an ephemeral znode with what closes its session and with what its process is, and
watches the processes of the others that run on its machine. Who sees one end closes that session;
ZooKeeper then removes what it owned, and the group goes on as if it had expired. Only a process
that was seen alive as the one that is named, and then ended, is proof: a number that nobody has is
none, and neither is silence. Source: R-CLI3, docs/failover.md.
"""

import logging
from collections.abc import Sequence
from functools import partial

from storage_engine.core.control.death_proof import MAX_STEPS, STEP_MS
from storage_engine.core.ports import (
    ForeignSessions,
    MetadataStore,
    Processes,
    Scheduler,
    SessionState,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.session_credentials import SessionZNode, WatchedSession
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

AGAIN_MS = 200
AGAIN_MAX_MS = 60_000
"""The delay after an answer that is none, or a refusal, doubles from one to the other."""
CLOSE_AGAIN_MAX_MS = 5_000
"""The longest delay before a session that is still there is closed again."""
MAX_MEMBERS = 1_000
"""The most znodes that are looked at."""


class _Other(WatchedSession):
    """The session of another member, or a znode that is none."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.password = b""


class DeadMembers:
    """One member's view of the others' sessions. All calls and callbacks are on the loop."""

    def __init__(
        self,
        paths: ConsumerGroupPaths,
        *,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        processes: Processes,
        foreign_sessions: ForeignSessions,
    ) -> None:
        self._paths = paths
        self._store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._processes = processes
        self._foreign_sessions = foreign_sessions
        self._flows = Flows()
        self._watches = NewestWatches(self._flows)
        self._looks = 0
        self._failures = 0
        """The number of failures in a row."""
        self._others: dict[str, _Other] = {}
        self._published = 0
        """The session whose znode this member has made."""

    def start(self) -> None:
        """Publish this member's session and watch the others'. Does nothing where the system does
        not say who this process is: nobody could watch it, nor it them."""
        if self._processes.own is not None:
            self._store.add_state_listener(self._on_state)
            self._begin()

    def close(self) -> None:
        """Watch and close nothing more. This member's znode goes with its session."""
        self._flows.close()
        for other in self._others.values():
            other.forget()
        self._others.clear()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self._flows.closed:
            self._failures = 0
            self._begin()

    def _begin(self) -> None:
        self._looks += 1
        self._flows.start(self._publish_and_look(self._looks))

    def _is_old(self, number: int) -> bool:
        return number != self._looks or self._flows.closed

    def _begin_later(self, number: int) -> Flow[None]:
        delay_ms = min(AGAIN_MAX_MS, AGAIN_MS << min(self._failures, 10))
        self._failures += 1
        yield from pause(self._scheduler, delay_ms)
        if not self._is_old(number):
            self._begin()

    def _publish_and_look(self, number: int) -> Flow[None]:
        session_id = self._store.session_id
        if not session_id:
            return  # until there is one
        if session_id != self._published:
            is_published = yield from self._publish(session_id)
            if self._is_old(number):
                return
            if not is_published:
                yield from self._begin_later(number)
                return
            self._published = session_id
        watch = self._watches.newest(self._paths.sessions, self._begin)
        listed = yield from self._zookeeper.children(self._paths.sessions, watch)
        if self._is_old(number):
            return
        own = ConsumerGroupPaths.session_name(session_id)
        if not listed.ok or own not in listed.children:
            # The session has ended, or somebody has removed the znode.
            self._published = 0
            yield from self._begin_later(number)
            return
        names = [each for each in listed.children if each != own]
        yield from self._compare(number, names[:MAX_MEMBERS])

    def _publish(self, session_id: int) -> Flow[bool]:
        """The place is for all members; only the znode in it is the member's own."""
        place = yield from self._zookeeper.create(self._paths.sessions, b"", make_parents=True)
        if not place.ok and place.status is not ZkStatus.NODE_EXISTS:
            return False
        if session_id != self._store.session_id:
            return False
        node = SessionZNode(password=self._store.session_password, process=self._processes.own)
        created = yield from self._zookeeper.create(
            self._paths.session(session_id), node.encode(), ephemeral=True
        )
        return created.ok or created.status is ZkStatus.NODE_EXISTS

    def _compare(self, number: int, names: Sequence[str]) -> Flow[None]:
        for name in self._others.keys() - set(names):
            self._others.pop(name).forget()
        paths = {f"{self._paths.sessions}/{each}": each for each in names}
        new = [path for path, name in paths.items() if name not in self._others]
        replies = yield from self._zookeeper.get_each(new)
        if self._is_old(number):
            return
        is_complete = True
        for path, reply in replies.items():
            if reply.ok:
                self._others[paths[path]] = self._met(path, paths[path], reply)
            elif not reply.is_absent:
                # Or it may not be read: it is another identity's.
                is_complete = False
        if is_complete:
            self._failures = 0
        else:
            yield from self._begin_later(number)

    def _met(self, path: str, name: str, reply: ZkReply) -> _Other:
        other = _Other(name)
        owner = reply.stat.ephemeral_owner if reply.stat else 0
        if not owner or name != ConsumerGroupPaths.session_name(owner):
            log.warning("znode %s ignored: it is not the session of a consumer", path)
            return other
        try:
            node = SessionZNode.decode_at(path, reply.data)
        except ZnodeFormatError as problem:
            log.warning("%s", problem)
            return other
        other.session_id, other.password = owner, node.password
        # Another connector of this very process ends when this one does.
        if node.process != self._processes.own:
            other.watch(self._processes, node, partial(self._process_ended, other))
        return other

    # --- the dead ---

    def _is_there(self, other: _Other) -> bool:
        return not self._flows.closed and self._others.get(other.name) is other

    def _process_ended(self, other: _Other) -> None:
        if not self._is_there(other):
            return
        other.forget()
        delay_ms = self._delay_ms()
        log.info(
            "consumer with session 0x%s is dead: its process has ended, and its session is closed "
            "in %d ms",
            other.name,
            delay_ms,
        )
        self._scheduler.call_later(delay_ms, partial(self._close_session, other))

    def _delay_ms(self) -> int:
        """Return this member's delay: in turns, so that most members find the session closed."""
        own = ConsumerGroupPaths.session_name(self._store.session_id)
        before = [o for o in self._others.values() if o.process is not None and o.name < own]
        return min(len(before), MAX_STEPS) * STEP_MS

    def _close_session(self, other: _Other) -> None:
        """Close the session, again and again while its znode is there."""
        if not self._is_there(other):
            return
        again_ms = min(CLOSE_AGAIN_MAX_MS, 2 * AGAIN_MS << min(other.attempts, 10))
        other.attempts += 1

        def done(_is_over: bool) -> None:
            # Also where it is over: the znode tells, of which this member may hear later.
            if not self._flows.closed:
                self._scheduler.call_later(again_ms, partial(self._close_session, other))

        self._foreign_sessions.end(other.session_id, other.password, done)
