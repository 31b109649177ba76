"""A member of a group in ZooKeeper: it registers, works out which partitions are its own, claims
them, commits their offsets, and releases them.

A partition is the member's once its session is known to own the owner's znode, until it asks for
the removal of that znode, or the session is gone. An offset is written in one step with a check
that the owner's znode is there: so a commit of an expired session is refused.

    ──owner made──► STARTING ──offset read──► READY ──handed over──► HELD ──not planned──► LEAVING
                        └───────────── session or znode gone: lost ────────────┘       removed ▼

Every change that a watch reports leads to one `_step`, which compares what is with what should be
and begins what is missing; it may run at any time. Only `core.ports` is used, so that the member
runs in the simulation, too. Source: R-CLI3.
"""

import enum
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from storage_engine.client.groups.group_requests import CommitRefusedError
from storage_engine.client.zookeeper_consumer.assignment import StreamCounts
from storage_engine.client.zookeeper_consumer.brokers_view import BrokersView, RegisteredBrokers
from storage_engine.client.zookeeper_consumer.cluster_view import ClusterView
from storage_engine.client.zookeeper_consumer.node_view import RETRY_MS, NodeView
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import (
    MetadataStore,
    Scheduler,
    SessionState,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.consumer_znodes import (
    ConsumerGroupPaths,
    ConsumerIdZNode,
    OffsetZNode,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import PLAIN_PROTOCOL

log = logging.getLogger(__name__)

OnCommitted = Callable[[HeadraceError | None], None]


class TakenPartition(NamedTuple):
    """A partition that is the member's now."""

    tp: TopicPartition
    stream: int
    """The number of the stream, among the topic's or the filter's."""
    offset: int | None
    """The next one to read; None where the group has committed nothing."""


class MemberListener(Protocol):
    """Reads the partitions. Its methods are called on the loop."""

    def set_brokers(self, addresses: str) -> None:
        """The live brokers have changed to these, `host:port,…`; there is at least one."""
        ...

    def take(self, taken: Sequence[TakenPartition]) -> None: ...

    def release(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Stops returning messages of these partitions, and returns the offsets to store."""
        ...

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Stops returning messages of these partitions: another consumer may own them already."""
        ...

    def fail(self, error: HeadraceError) -> None:
        """The member has failed in a way that only a person can mend."""
        ...


class _Stage(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    HELD = "held"
    LEAVING = "leaving"


@dataclass(slots=True, eq=False)
class _Claim:
    """Invariant: the owner's znode is the present session's, as far as is known."""

    stream: int
    stage: _Stage = _Stage.STARTING
    busy: bool = False
    """True while an operation is under way; at most one is."""
    stored: bool = False
    """True when the offset's znode exists."""
    offset: int | None = None
    """While READY, the offset in the znode. Then the offset to store; None when there is none."""
    waiting: list["_Commit"] = field(default_factory=list)
    """Commits that wait until `offset` is stored."""


@dataclass(slots=True, eq=False)
class _Commit:
    """A call of `commit`, until all of its partitions have an answer."""

    left: int
    on_done: OnCommitted
    error: HeadraceError | None = None

    def answer(self, error: HeadraceError | None) -> None:
        self.error = self.error or error
        self.left -= 1
        if not self.left:
            self.on_done(self.error)


class ZooKeeperGroupMember:
    """One consumer of a group. All calls and callbacks happen on the loop."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        reader: MemberListener,
        *,
        group: str,
        consumer: str,
        streams: StreamCounts,
        protocol: str = PLAIN_PROTOCOL,
        brokers: BrokersView | None = None,
    ) -> None:
        """`brokers`: None takes them from their znodes, by their listeners for the security
        protocol `protocol`."""
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._reader = reader
        self._group = group
        self._consumer = consumer
        self._streams = streams
        self._paths = ConsumerGroupPaths(group)
        self._nodes = NodeView(metadata_store, scheduler, self._step_soon)
        brokers = brokers or RegisteredBrokers(self._nodes, protocol)
        self._cluster = ClusterView(self._nodes, self._paths, brokers)
        self._addresses = ""
        self._planned: dict[TopicPartition, int] | None = None
        self._planned_at = 0
        self._held: dict[TopicPartition, _Claim] = {}
        self._claimed: dict[TopicPartition, int] = {}
        """All partitions that this session has ever claimed, with their streams: it may own them
        even if the answer was lost or the plan has changed."""
        self._writing: set[str] = set()
        """Znodes of this consumer that are being made or set."""
        self._step_due = False
        self._on_stopped: Callable[[], None] | None = None
        metadata_store.add_state_listener(self._on_state)

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The partitions that the reader has."""
        return frozenset(tp for tp, each in self._held.items() if each.stage is _Stage.HELD)

    def start(self) -> None:
        self._step_soon()

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Releases everything, then calls `on_stopped`. The consumer's own znode goes with its
        session."""
        self._on_stopped = on_stopped
        self._step_soon()

    def commit(self, offsets: Mapping[TopicPartition, int], on_done: OnCommitted) -> None:
        """Store the next offsets to read; CommitRefusedError where the partition is not held."""
        if not offsets:
            on_done(None)
            return
        commit = _Commit(left=len(offsets), on_done=on_done)
        for tp, offset in offsets.items():
            holding = self._held.get(tp)
            if holding is None or holding.stage is not _Stage.HELD:
                commit.answer(self._refused(tp))
            else:
                holding.offset = offset
                holding.waiting.append(commit)
                self._carry_on(tp, holding)

    # --- when to look ---

    def _step_soon(self) -> None:
        """Schedules a step in the next turn of the loop, so that all changes until then are handled
        at once."""
        if not self._step_due:
            self._step_due = True
            self._scheduler.call_soon(self._step)

    def _step_later(self) -> None:
        """Schedules a step after a delay, for an answer that leaves the outcome open."""
        self._scheduler.call_later(RETRY_MS, self._step_soon)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._lose([*self._held])
            self._claimed.clear()
        self._step_soon()

    def _step(self) -> None:
        self._step_due = False
        if self._metadata_store.session_id:
            self._check_owners()
            planned = {} if self._on_stopped is not None else self._plan()
            if planned is not None:
                self._release_all_but(planned)
                for tp, stream in planned.items():
                    if tp not in self._held:
                        self._claim(tp, stream)
            for tp, holding in [*self._held.items()]:
                self._carry_on(tp, holding)
            self._hand_over()
        if self._on_stopped is not None and not self._held:
            on_stopped, self._on_stopped = self._on_stopped, lambda: None
            on_stopped()

    # --- registration and plan ---

    def _plan(self) -> dict[TopicPartition, int] | None:
        """The partitions that this member should own, with the stream of each; None while that is
        not known."""
        if self._planned is None or self._planned_at != self._cluster.changes:
            self._planned_at = self._cluster.changes
            self._planned = self._plan_anew()
        return self._planned

    def _plan_anew(self) -> dict[TopicPartition, int] | None:
        addresses = self._cluster.brokers.addresses()
        if addresses and addresses != self._addresses:
            self._addresses = addresses
            self._reader.set_brokers(addresses)
        topics = self._cluster.brokers.topics()
        if topics is None or addresses is None:
            return None
        wanted = self._streams.of(topics)
        if not self._is_registered(wanted):
            return None
        return self._cluster.plan(self._consumer, wanted)

    def _is_registered(self, wanted: Mapping[str, int]) -> bool:
        """Whether the consumer's znode says what is wanted; else it is made to."""
        path = self._paths.id(self._consumer)
        data = ConsumerIdZNode(wanted).encode()
        seen = self._nodes.data(path)
        if seen is None or path in self._writing:
            return False
        if not seen.there:
            log.info("joins group=%s consumer=%s reads=%s", self._group, self._consumer, data)
            self._create_own(path, data)
            return False
        if seen.owner != self._metadata_store.session_id:
            # Of a session of this consumer that is about to vanish: the watch tells.
            return False
        if seen.data != data:
            self._writing.add(path)
            self._metadata_store.set(path, data, -1, functools.partial(self._on_written, path))
            return False
        return True

    def _create_own(self, path: str, data: bytes) -> None:
        self._writing.add(path)
        self._metadata_store.create(
            path,
            data,
            functools.partial(self._on_written, path),
            ephemeral=True,
            make_parents=True,
        )

    def _on_written(self, path: str, reply: ZkReply) -> None:
        """Whatever the answer says, reading the znode shows the outcome."""
        self._writing.discard(path)
        self._nodes.forget(path)
        if reply.status is ZkStatus.UNKNOWN:
            self._step_later()
        else:
            self._step_soon()

    # --- partitions come ---

    def _claim(self, tp: TopicPartition, stream: int) -> None:
        path = self._paths.owner(tp)
        seen = self._nodes.data(path)
        if seen is None or path in self._writing:
            return
        # Else another's, still: the watch tells when it lets go.
        if not seen.there:
            self._claimed[tp] = stream
            self._create_own(path, self._consumer.encode())

    def _read_offset(self, tp: TopicPartition, holding: _Claim) -> None:
        """Reads the offset only once no other member owns the partition, so that no other member
        can store one afterwards."""

        def on_reply(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                # What will be stored needs a place.
                path = self._paths.topic_offsets(tp.topic)
                self._metadata_store.create(path, b"", on_place, make_parents=True)
                return
            known = reply.ok
            if known:
                try:
                    holding.offset = OffsetZNode.decode(self._paths.offset(tp), reply.data)
                except ZnodeFormatError as error:
                    # Whoever guessed where to go on would skip or repeat what nobody knows of.
                    known = False
                    self._reader.fail(error)
                    self.stop(lambda: None)
            self._started(holding, known=known, stored=True)

        def on_place(reply: ZkReply) -> None:
            known = reply.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS)
            self._started(holding, known=known, stored=False)

        holding.busy = True
        self._metadata_store.get(self._paths.offset(tp), on_reply)

    def _started(self, holding: _Claim, *, known: bool, stored: bool) -> None:
        holding.busy = False
        if not known:
            self._step_later()
            return
        if holding.stage is _Stage.STARTING:
            holding.stage, holding.stored = _Stage.READY, stored
        self._step_soon()

    def _hand_over(self) -> None:
        """Hands over all partitions that come together at once."""
        stages = {holding.stage for holding in self._held.values()}
        if self._writing or _Stage.STARTING in stages or _Stage.READY not in stages:
            return
        taken = []
        for tp, holding in self._held.items():
            if holding.stage is _Stage.READY:
                taken.append(TakenPartition(tp, holding.stream, holding.offset))
                holding.stage, holding.offset = _Stage.HELD, None
        log.info("owns group=%s consumer=%s: %s", self._group, self._consumer, _names(taken))
        self._reader.take(taken)

    # --- partitions go ---

    def _check_owners(self) -> None:
        """Checks the owner znodes again: a claim without an answer may have succeeded, and somebody
        may have removed a znode by hand."""
        for tp, stream in self._claimed.items():
            seen = self._nodes.data(self._paths.owner(tp))
            if tp not in self._held and seen and seen.owner == self._metadata_store.session_id:
                self._held[tp] = _Claim(stream)
        gone = []
        for tp, holding in self._held.items():
            seen = self._nodes.data(self._paths.owner(tp))
            if holding.busy or seen is None or seen.owner == self._metadata_store.session_id:
                continue
            if holding.stage is _Stage.LEAVING:
                # An answer was lost: it is removed in one step with storing the offset.
                self._answer(holding, None)
            gone.append(tp)
        self._lose(gone)

    def _lose(self, partitions: Sequence[TopicPartition]) -> None:
        lost = []
        for tp in partitions:
            holding = self._held.pop(tp)
            self._answer(holding, self._refused(tp))
            if holding.stage is _Stage.HELD:
                lost.append(tp)
        if lost:
            log.warning("lost group=%s consumer=%s: %s", self._group, self._consumer, _names(lost))
            self._reader.lose(lost)

    def _release_all_but(self, planned: Mapping[TopicPartition, int]) -> None:
        leaving = []
        for tp, holding in self._held.items():
            if planned.get(tp) == holding.stream or holding.stage is _Stage.LEAVING:
                continue
            if holding.stage is _Stage.HELD:
                leaving.append(tp)
            else:
                holding.offset = None
            holding.stage = _Stage.LEAVING
        if leaving:
            log.info(
                "releases group=%s consumer=%s: %s", self._group, self._consumer, _names(leaving)
            )
            for tp, offset in self._reader.release(leaving).items():
                self._held[tp].offset = offset

    # --- offsets ---

    def _carry_on(self, tp: TopicPartition, holding: _Claim) -> None:
        if holding.busy:
            return
        match holding.stage:
            case _Stage.STARTING:
                self._read_offset(tp, holding)
            case _Stage.HELD if holding.offset is not None:
                self._store(tp, holding, ZkOpKind.CHECK)
            case _Stage.LEAVING:
                self._store(tp, holding, ZkOpKind.DELETE)
            case _:
                pass

    def _store(self, tp: TopicPartition, holding: _Claim, owner: ZkOpKind) -> None:
        """The offset, if there is one to store, in one step with `owner` on the owner's znode."""
        offset, waiting = holding.offset, holding.waiting
        holding.busy, holding.waiting = True, []
        operations = [ZkOp(kind=owner, path=self._paths.owner(tp))]
        if offset is not None:
            kind = ZkOpKind.SET if holding.stored else ZkOpKind.CREATE
            data = OffsetZNode.encode(offset)
            operations.append(ZkOp(kind=kind, path=self._paths.offset(tp), data=data))

        def on_reply(reply: ZkReply) -> None:
            holding.busy = False
            holding.waiting = waiting + holding.waiting
            if self._held.get(tp) is not holding:
                self._answer(holding, self._refused(tp))
            elif reply.ok:
                self._stored(tp, holding, offset, waiting, owner)
            else:
                self._not_stored(tp, holding, reply)

        self._metadata_store.multi(operations, on_reply)

    def _stored(
        self,
        tp: TopicPartition,
        holding: _Claim,
        offset: int | None,
        waiting: Sequence[_Commit],
        owner: ZkOpKind,
    ) -> None:
        if owner is ZkOpKind.DELETE:
            del self._held[tp]
            self._nodes.forget(self._paths.owner(tp))
            self._answer(holding, None)
            self._step_soon()
        else:
            holding.stored = True
            if holding.offset == offset:
                holding.offset = None
            holding.waiting = holding.waiting[len(waiting) :]
            for commit in waiting:
                commit.answer(None)
            self._carry_on(tp, holding)

    def _not_stored(self, tp: TopicPartition, holding: _Claim, reply: ZkReply) -> None:
        self._nodes.forget(self._paths.owner(tp))
        if reply.status is ZkStatus.NODE_EXISTS:
            holding.stored = True
        elif reply.status is ZkStatus.NO_NODE and reply.failed == 1:
            # Somebody has removed it: by its parents, if it was to be made.
            holding.stored = False
            place = self._paths.topic_offsets(tp.topic)
            self._metadata_store.create(place, b"", self._on_place, make_parents=True)
            return
        elif reply.status is ZkStatus.UNKNOWN:
            self._step_later()
            return
        self._step_soon()

    def _on_place(self, _reply: ZkReply) -> None:
        """If the znode could not be created, the next attempt to store an offset reports it."""
        self._step_later()

    def _answer(self, holding: _Claim, error: HeadraceError | None) -> None:
        waiting, holding.waiting = holding.waiting, []
        for commit in waiting:
            commit.answer(error)

    def _refused(self, tp: TopicPartition) -> CommitRefusedError:
        return CommitRefusedError(
            f"group '{self._group}': {tp} is owned by another consumer now; the records read from "
            "it since the last commit are read again by that consumer"
        )


def _names(partitions: Sequence[TopicPartition] | Sequence[TakenPartition]) -> str:
    each = (one.tp if isinstance(one, TakenPartition) else one for one in partitions)
    return " ".join(sorted(map(str, each)))
