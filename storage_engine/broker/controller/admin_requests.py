"""Requests to the controller through /admin: reassignments and preferred elections.

A request stands in its node until it is done, so that the next controller finds it; an entry that
can't be carried out is taken out with a line in the log, and the others go on. Requests of the
Kafka API are written into the same nodes. Source: R-CTL7, R-CTL8, R-CTL10.

Requests for the deletion of topics: children of /admin/delete_topics, or one JSON in it.

Each topic that a JSON names gets a child before its deletion begins. A child is removed in the same
multi as its topic; an entry that stayed in the JSON would delete a later topic of that name.
Source: R-CTL6, R-CTL10.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from storage_engine.broker import unexpected
from storage_engine.broker.controller.elections import Elections
from storage_engine.broker.controller.store import ControllerFence
from storage_engine.core.control.controller_events import (
    DropReassignmentRequests,
    ReassignmentRequested,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import (
    MetadataStore,
    Scheduler,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.admin_znodes import (
    DeleteTopicsZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.flow import (
    Flow,
    Flows,
    NewestWatches,
    ZookeeperFlows,
    pause,
    remove_children,
    remove_subtree,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)


Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]

RETRY_MS = 500
CONFLICT_PAUSE_MS = 50
"""Pause between two attempts to change a node that others change too."""
FAILED_MS = 5_000
"""Pause before content is passed on again after its receiver has failed."""


class Content(NamedTuple):
    """The content of a node; a node that is not there holds nothing and has no version."""

    data: bytes | None
    version: int


ABSENT = Content(None, -1)


class AdminNode:
    """A node for requests, watched as long as its controller acts: the watch is set in the read
    that returns the content, and a node that does not exist is waited for."""

    def __init__(
        self,
        path: str,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        *,
        on_content: Callable[[Content], None],
    ) -> None:
        """`flows` end with the controller. `on_content` receives the content at the start and after
        every change."""
        self.path = path
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._changes = Flows()
        """Changes; they continue after the controller's end, until their outcome is known."""
        self._on_content = on_content
        self._generation = 0

    def read(self) -> None:
        """Read and pass on the content. Of several reads under way only the newest counts."""
        self._generation += 1
        self._flows.start(self._read(self._generation))

    def _read_again(self, generation: int) -> None:
        if generation == self._generation and not self._flows.closed:
            self.read()

    def _read(self, generation: int) -> Flow[None]:
        fired = partial(self._read_again, generation)
        found = yield from self._zookeeper.get(self.path, fired)
        is_absent = False
        if found.status is ZkStatus.NO_NODE and generation == self._generation:
            seen = yield from self._zookeeper.exists(self.path, fired)
            is_absent = seen.status is ZkStatus.NO_NODE
            if seen.ok:
                fired()
                return
        if generation != self._generation:
            return
        if is_absent:
            self._pass_on(ABSENT, fired)
        elif found.ok and found.stat is not None:
            self._pass_on(Content(found.data, found.stat.version), fired)
        else:
            self._scheduler.call_later(RETRY_MS, fired)

    def _pass_on(self, content: Content, again: Callable[[], None]) -> None:
        try:
            self._on_content(content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node is read again
            self._scheduler.call_later(FAILED_MS, again)
            unexpected.report(f"content of {self.path} not taken", error)

    def change(
        self,
        new_data: Callable[[bytes | None], bytes | None],
        done: Callable[[bool], None],
        *,
        once: bool = False,
    ) -> None:
        """Replace the content by what `new_data` makes of it; None removes the node.

        `done(False)`: ZooKeeper did not answer, and the outcome is open; or, with `once`, somebody
        else was faster, and the new content may request something else.
        """
        self._changes.start(self._change(new_data, once=once), done)

    def _change(
        self, new_data: Callable[[bytes | None], bytes | None], *, once: bool
    ) -> Flow[bool]:
        while True:
            found = yield from self._zookeeper.get(self.path)
            if found.ok and found.stat is not None:
                content = Content(found.data, found.stat.version)
            elif found.status is ZkStatus.NO_NODE:
                content = ABSENT
            else:
                return False
            try:
                wanted = new_data(content.data)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked is answered
                unexpected.report(f"content of {self.path} not changed", error)
                return False
            if wanted == content.data:
                return True
            written = yield from self._put(content, wanted)
            if written is None:
                return False
            if written.ok or once or written.status is ZkStatus.UNKNOWN:
                return written.ok
            yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
            if self._flows.closed:
                return False

    def _put(self, present: Content, wanted: bytes | None) -> Flow[ZkReply | None]:
        if wanted is None:
            return (yield from self._delete(present.version))
        if present.data is None:
            return (yield from self._zookeeper.create(self.path, wanted, make_parents=True))
        return (yield from self._zookeeper.set(self.path, wanted, present.version))

    def _delete(self, version: int) -> Flow[ZkReply | None]:
        """Deletes the znode and the nodes below it. Returns None when this controller has ended."""
        while True:
            deleted = yield from self._zookeeper.delete(self.path, version)
            if deleted.status is not ZkStatus.NOT_EMPTY:
                return deleted
            log.warning("%s has child znodes, which are not requests: removed", self.path)
            yield from remove_children(self._zookeeper, self.path)
            # Not at once: others may make them as fast.
            yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
            if self._flows.closed:
                return None


class AdminRequests:
    """The two znodes of administrators' requests, during one controller epoch. No request is passed
    on before `release`."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        *,
        submit: Callable[[ReassignmentRequested], None],
        elections: Elections,
        learn_topics: Callable[[Iterable[str]], Flow[None]],
    ) -> None:
        """`learn_topics`: reads topics that may be younger than the controller's state."""
        self._scheduler = scheduler
        self._flows = flows
        self._submit = submit
        self._elections = elections
        self._learn_topics = learn_topics
        self._reassign = AdminNode(
            ReassignPartitionsZNode.PATH,
            metadata_store,
            scheduler,
            flows,
            on_content=self._on_reassignments,
        )
        self._prefer = AdminNode(
            PreferredReplicaElectionZNode.PATH,
            metadata_store,
            scheduler,
            flows,
            on_content=self._on_elections,
        )
        self._released = False
        self._early: dict[AdminNode, None] = {}
        """Nodes that were read before the release."""
        self._written: list[Callable[[bool], None]] = []

    def start(self) -> None:
        self._reassign.read()
        self._prefer.read()

    def release(self) -> None:
        """Called when everything else is loaded: from now on requests are passed on."""
        self._released = True
        early, self._early = self._early, {}
        for node in early:
            node.read()

    def _is_early(self, node: AdminNode) -> bool:
        """Whether the node must be read again at the release, in the order of the reads."""
        if not self._released:
            self._early.pop(node, None)
            self._early[node] = None
        return not self._released

    def close(self) -> None:
        """The controller has ended: answer the requests that wait."""
        unanswered, self._written = self._written, []
        for done in unanswered:
            done(False)

    # --- reassignments ---

    def reassign(self, wanted: Targets, done: Callable[[bool], None]) -> None:
        """Add targets to those requested; `done` when the controller has received them, or with
        False when ZooKeeper did not answer."""

        def merged(data: bytes | None) -> bytes | None:
            targets = {**_targets(data), **wanted}
            return ReassignPartitionsZNode(target_replicas=targets).encode()

        self._reassign.change(merged, partial(self._asked_for, done))

    def _asked_for(self, done: Callable[[bool], None], written: bool) -> None:
        if not written or self._flows.closed:
            done(False)
            return
        self._written.append(done)
        self._reassign.read()

    def drop(self, effect: DropReassignmentRequests) -> None:
        """Removes requests that are done or refused, unless they were changed meanwhile."""
        for partition, (target, why) in effect.requests.items():
            if why is None:
                log.info("reassigned partition=%s replicas=%s", partition, list(target))
            else:
                log.warning("reassignment of %s to %s dropped: %s", partition, list(target), why)

        def without(data: bytes | None) -> bytes | None:
            targets = {
                partition: target
                for partition, target in _targets(data).items()
                if partition not in effect.requests or effect.requests[partition][0] != target
            }
            return ReassignPartitionsZNode(target_replicas=targets).encode() if targets else None

        # Where that fails, the requests that are left then are decided anew.
        self._reassign.change(without, partial(self._dropped, self._reassign), once=True)

    def _dropped(self, node: AdminNode, done: bool) -> None:
        if not done and not self._flows.closed:
            self._scheduler.call_later(RETRY_MS, node.read)

    def _on_reassignments(self, content: Content) -> None:
        if not self._is_early(self._reassign):
            self._flows.start(self._submit_targets(self._readable_targets(content)))

    def _submit_targets(self, targets: Targets) -> Flow[None]:
        answered, self._written = self._written, []
        yield from self._learn_topics({partition.topic for partition in targets})
        self._submit(ReassignmentRequested(targets=targets))
        for done in answered:
            done(not self._flows.closed)

    def _readable_targets(self, content: Content) -> Targets:
        if content.data is None:
            return {}
        try:
            node = ReassignPartitionsZNode.decode(content.data)
        except ZnodeFormatError as failure:
            log.error("reassignment dropped: %s", failure)
        else:
            for problem in node.problems:
                log.error("reassignment dropped: %s", problem)
            if node.target_replicas and not node.problems:
                return node.target_replicas
        readable = _targets(content.data)
        rest = ReassignPartitionsZNode(target_replicas=readable).encode() if readable else None
        unreadable = content.data
        self._reassign.change(lambda data: rest if data == unreadable else data, lambda _done: None)
        return readable

    # --- preferred elections ---

    def _on_elections(self, content: Content) -> None:
        data = content.data
        if self._is_early(self._prefer) or data is None:
            return
        try:
            node = PreferredReplicaElectionZNode.decode(data)
        except ZnodeFormatError as failure:
            log.error("preferred election dropped: %s", failure)
            node = PreferredReplicaElectionZNode(partitions=())
        for problem in node.problems:
            log.error("preferred election dropped: %s", problem)
        self._flows.start(self._elect(data, node.partitions))

    def _elect(self, data: bytes, partitions: tuple[TopicPartition, ...]) -> Flow[None]:
        yield from self._learn_topics({partition.topic for partition in partitions})
        self._elections.request(partitions, partial(self._elected, data), unclean=False)

    def _elected(self, data: bytes, outcomes: Mapping[TopicPartition, ErrorCode] | None) -> None:
        """`data`: the request, which is over; `outcomes` None: another controller continues it."""
        if outcomes is None:
            return
        for partition, code in outcomes.items():
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                log.warning("no preferred election of %s: %s", partition, code.meaning)
        dropped = partial(self._dropped, self._prefer)
        self._prefer.change(lambda now: None if now == data else now, dropped)


def _targets(data: bytes | None) -> Targets:
    """The targets in the node's content; none when it can't be decoded."""
    try:
        return {} if data is None else ReassignPartitionsZNode.decode(data).target_replicas
    except ZnodeFormatError:
        return {}


TOPICS_PER_MULTI = 100
"""The most topics of a JSON request that are processed in one multi."""


class _JsonRequest(NamedTuple):
    topics: tuple[str, ...]
    version: int


class DeletionRequests:
    """The requests for deletions, as one elected controller reads them."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        fence: ControllerFence,
        *,
        on_requests: Callable[[tuple[str, ...]], None],
    ) -> None:
        """`on_requests` receives all requests, at the start and whenever they change."""
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._fence = fence
        self._on_requests = on_requests

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        """Read with a watch on each form: the JSON may be set without a change of the children."""
        path = DeleteTopicsZNode.PATH
        while True:
            watch = self._watches.newest("deletions as JSON", self.read)
            found = yield from self._zookeeper.get(path, watch)
            if found.status is not ZkStatus.UNKNOWN:
                if not found.ok:
                    self._flows.start(self._await_creation())
                    self._on_requests(())
                    return
                request = _json_request(found)
                if request is None:
                    watch = self._watches.newest("deletions", self.read)
                    listed = yield from self._zookeeper.children(path, watch)
                    if listed.status is not ZkStatus.UNKNOWN:
                        self._on_requests(tuple(listed.children) if listed.ok else ())
                        return
                elif (yield from self._turn_into_children(request)):
                    # The watch on the JSON leads to the next read.
                    return
            yield from pause(self._scheduler, RETRY_MS)

    def _await_creation(self) -> Flow[None]:
        while True:
            watch = self._watches.newest("deletions", self.read)
            seen = yield from self._zookeeper.exists(DeleteTopicsZNode.PATH, watch)
            if seen.ok:
                self.read()
            if seen.status is not ZkStatus.UNKNOWN:
                return
            yield from pause(self._scheduler, RETRY_MS)

    def _turn_into_children(self, request: _JsonRequest) -> Flow[bool]:
        """Make children of the first part of the JSON; return whether they were written."""
        part, rest = request.topics[:TOPICS_PER_MULTI], request.topics[TOPICS_PER_MULTI:]
        listed = yield from self._zookeeper.children(DeleteTopicsZNode.PATH)
        if not listed.ok:
            return False
        creations = [
            ZkOp(kind=ZkOpKind.CREATE, path=DeleteTopicsZNode.topic_path(topic))
            for topic in dict.fromkeys(part)
            if topic not in listed.children
        ]
        shortened = ZkOp(
            kind=ZkOpKind.SET,
            path=DeleteTopicsZNode.PATH,
            data=DeleteTopicsZNode(topics=rest).encode() if rest else b"",
            version=request.version,
        )
        turned = yield from self._zookeeper.multi([self._fence.check, *creations, shortened])
        return turned.ok

    def drop(self, topic: str) -> None:
        path = DeleteTopicsZNode.topic_path(topic)
        # Even with nodes below it: a request that stays would delete a later topic of that name.
        self._flows.start(remove_subtree(self._zookeeper, path))


def _json_request(reply: ZkReply) -> _JsonRequest | None:
    """The topics that the znode's JSON names; None when there are none."""
    if not reply.data or reply.stat is None:
        return None
    try:
        node = DeleteTopicsZNode.decode(reply.data)
    except ZnodeFormatError as failure:
        log.error("deletion ignored: %s", failure)
        return None
    for problem in node.problems:
        log.error("deletion ignored: %s", problem)
    return _JsonRequest(node.topics, reply.stat.version) if node.topics else None
