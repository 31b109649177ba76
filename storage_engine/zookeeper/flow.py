"""A flow is work that waits, written from top to bottom: a generator that yields its waits.

    def brokers(self) -> Flow[list[str]]:
        reply = yield from self._zookeeper.children(path)
        while not reply.ok:
            yield from pause(self._scheduler, RETRY_MS)
            reply = yield from self._zookeeper.children(path)
        return list(reply.children)

A flow continues on the event loop, in the callback that ends its wait. Meanwhile anything may
happen, so conditions that were checked before a wait are checked again after it. This module checks
only that the flow's owner still exists: once `Flows` are closed, none of them continues. An
exception in a flow is raised by the callback that resumed it.

`remove_subtree` is a flow that removes a node with all nodes below it, whoever made them. ZooKeeper
removes only nodes without children, so the deepest go first. Each step checks the same
guard (conditions in the same multi), so that nothing more is removed once the guard fails. Only
`core.ports` is used, so that flows run in the simulation too.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkReply, ZkStatus

T = TypeVar("T")

Resume = Callable[[Any], None]

Wait = Callable[[Resume], None]
"""Begins an operation, and has it call the argument with the outcome, once, at once or later."""

Flow = Generator[Wait, Any, T]
"""Work with waits, and its result."""

Watch = Callable[[], None]

_NOTHING = object()


class Flows:
    """The flows of one owner."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        """Continue no flow any more; operations that were begun may still end."""
        self.closed = True

    def start(self, flow: Flow[T], then: Callable[[T], None] | None = None) -> None:
        """Run a flow up to its first wait, and on whenever a wait is over; `then` gets its
        result."""
        _Running(self, flow, then).resume(None)

    def together(self, flows: Iterable[Flow[T]]) -> Flow[list[T]]:
        """Return the results of all flows, in their order, once all have ended."""
        begun = list(flows)
        return (yield partial(self._start_all, begun)) if begun else []

    def _start_all(self, flows: Sequence[Flow[T]], done: Callable[[list[T]], None]) -> None:
        results: dict[int, T] = {}

        def ended(number: int, result: T) -> None:
            results[number] = result
            if len(results) == len(flows):
                done([results[each] for each in range(len(flows))])

        for number, flow in enumerate(flows):
            self.start(flow, partial(ended, number))


class _Running(Generic[T]):
    """One flow. Where a wait is over before the generator yields, the flow continues in a loop, not
    deeper in the stack."""

    __slots__ = ("_early", "_flow", "_is_in_step", "_owner", "_then")

    def __init__(self, owner: Flows, flow: Flow[T], then: Callable[[T], None] | None) -> None:
        self._owner = owner
        self._flow = flow
        self._then = then
        self._is_in_step = False
        self._early: Any = _NOTHING
        """The outcome of a wait that was over at once."""

    def resume(self, outcome: Any) -> None:
        if self._is_in_step:
            self._early = outcome
            return
        while outcome is not _NOTHING and not self._owner.closed:
            self._is_in_step = True
            try:
                self._flow.send(outcome)(self.resume)
            except StopIteration as end:
                if self._then is not None:
                    self._then(end.value)
                return
            finally:
                self._is_in_step = False
            outcome, self._early = self._early, _NOTHING


class NewestWatches:
    """Watches by name, of which only the newest one counts. Each read of a node sets another watch,
    and reads may overlap: without this, each of them would lead to a read of its own."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._numbers: dict[str, int] = {}

    def newest(self, name: str, work: Callable[[], None]) -> Watch:
        """A watch that does `work`, unless another was made under the name since."""
        number = self._numbers.get(name, 0) + 1
        self._numbers[name] = number

        def run() -> None:
            if not self._flows.closed and self._numbers.get(name) == number:
                work()

        return run

    def forget(self, name: str) -> None:
        """Ignore all callbacks under this name from now on."""
        self._numbers.pop(name, None)


def pause(scheduler: Scheduler, delay_ms: int) -> Flow[None]:
    yield lambda resume: _call_later(scheduler, delay_ms, resume)


def _call_later(scheduler: Scheduler, delay_ms: int, resume: Resume) -> None:
    scheduler.call_later(delay_ms, partial(resume, None))


class ZookeeperFlows:
    """The requests of a MetadataStore as flows: each returns the reply."""

    def __init__(self, metadata_store: MetadataStore) -> None:
        self._store = metadata_store

    def get(self, path: str, watch: Watch | None = None) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.get, path, watch=watch)
        return reply

    def children(self, path: str, watch: Watch | None = None) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.children, path, watch=watch)
        return reply

    def exists(self, path: str, watch: Watch | None = None) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.exists, path, watch=watch)
        return reply

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(
            self._store.create, path, data, ephemeral=ephemeral, make_parents=make_parents
        )
        return reply

    def set(self, path: str, data: bytes, version: int) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.set, path, data, version)
        return reply

    def delete(self, path: str, version: int) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.delete, path, version)
        return reply

    def multi(self, operations: Sequence[ZkOp]) -> Flow[ZkReply]:
        reply: ZkReply = yield partial(self._store.multi, operations)
        return reply

    def get_each(
        self, paths: Iterable[str], watches: Mapping[str, Watch] | None = None
    ) -> Flow[dict[str, ZkReply]]:
        """Read many nodes at once; return path -> reply, in the order of the paths."""
        return (yield from self._each(paths, partial(self._get_watched, watches or {})))

    def exist_each(self, paths: Iterable[str]) -> Flow[dict[str, ZkReply]]:
        """Check many nodes as `get_each` does, without their contents."""
        return (yield from self._each(paths, self._store.exists))

    def _get_watched(
        self, watches: Mapping[str, Watch], path: str, on_reply: Callable[[ZkReply], None]
    ) -> None:
        self._store.get(path, on_reply, watches.get(path))

    def _each(
        self, paths: Iterable[str], ask: Callable[[str, Callable[[ZkReply], None]], None]
    ) -> Flow[dict[str, ZkReply]]:
        wanted = list(dict.fromkeys(paths))
        replies: dict[str, ZkReply] = {}

        def begin(done: Resume) -> None:
            def on_reply(path: str, reply: ZkReply) -> None:
                replies[path] = reply
                if len(replies) == len(wanted):
                    done(None)

            for path in wanted:
                ask(path, partial(on_reply, path))

        if wanted:
            yield begin
        return {path: replies[path] for path in wanted}


MAX_LISTINGS = 10
"""The most listings of one node in one attempt: another program may create children as fast as they
are removed."""


def remove_subtree(
    zookeeper: ZookeeperFlows, path: str, *, guard: Sequence[ZkOp] = (), version: int = -1
) -> Flow[ZkReply]:
    """Remove `path`, which must be of this version, and all below it. Returns OK when it is gone,
    or was not there, else the reply that refused the guard or a node."""
    # Each node stands before those that were found below it, with its version and how often its
    # children were listed.
    stack = [(path, version, 0)]
    while stack:
        path, version, listings = stack[-1]
        deletion = ZkOp(kind=ZkOpKind.DELETE, path=path, version=version)
        deleted = yield from zookeeper.multi([*guard, deletion])
        is_gone = deleted.is_absent and deleted.failed == len(guard)
        if deleted.ok or is_gone:
            stack.pop()
            continue
        if deleted.status is not ZkStatus.NOT_EMPTY or listings == MAX_LISTINGS:
            return deleted
        stack[-1] = path, version, listings + 1
        listed = yield from zookeeper.children(path)
        if not listed.ok and not listed.is_absent:
            return listed
        stack.extend((child, -1, 0) for child in _children(path, listed))
    return ZkReply(status=ZkStatus.OK)


def remove_children(
    zookeeper: ZookeeperFlows, path: str, *, guard: Sequence[ZkOp] = ()
) -> Flow[ZkReply]:
    """Remove all below `path`, as `remove_subtree` does."""
    listed = yield from zookeeper.children(path)
    if not listed.ok and not listed.is_absent:
        return listed
    for child in _children(path, listed):
        removed = yield from remove_subtree(zookeeper, child, guard=guard)
        if not removed.ok:
            return removed
    return ZkReply(status=ZkStatus.OK)


def _children(path: str, listed: ZkReply) -> list[str]:
    return [f"{path}/{name}" for name in listed.children] if listed.ok else []
