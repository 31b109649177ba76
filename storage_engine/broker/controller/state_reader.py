"""Reads partitions' states for the acting controller, until ZooKeeper answers.

A state of a later controller epoch is passed on only once it is known whether there is a later
controller, since foreign programs may write any number. After a refused write a partition waits for
its own refusals only: the pause is doubled while every write of it is refused and nothing new is
known of it (somebody removed a topic's nodes by hand). Source: R-CTL1, R-CTL2, R-CTL5, R-CTL10.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from storage_engine.broker.controller.store import STATES_PER_READ, ControllerFence, ControllerStore
from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import StatesRead
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.zookeeper.flow import Flow, Flows, pause

RETRY_MS = 500
"""Pause before a read that ZooKeeper did not answer is done again."""

UNREADABLE_PAUSE_MS = 5_000
"""Pause before an undecodable state is read again: it may have been repaired."""

CONFLICT_PAUSE_MS = 20
"""Pause before a state is read after one refused or unanswered write."""
CONFLICT_PAUSE_MAX_MS = 5_000

States = dict[TopicPartition, PartitionState | None]


class StateReader:
    """Reads partition states during one controller epoch."""

    def __init__(
        self,
        store: ControllerStore,
        scheduler: Scheduler,
        flows: Flows,
        fence: ControllerFence,
        *,
        core: Controller,
        submit: Callable[[StatesRead], None],
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._flows = flows
        self._fence = fence
        self._core = core
        self._submit = submit
        self._unreadable: set[TopicPartition] = set()
        """Partitions whose state could not be decoded last; they are read again together."""
        self._is_to_read = False

    def read(
        self, partitions: Iterable[TopicPartition], then: Callable[[], None] = lambda: None
    ) -> None:
        """Submit the partitions' states, then call `then`."""
        self._flows.start(self._read(tuple(partitions), then))

    def read_after_pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Like `read`, but waits before each read for the pause due after refused writes."""
        for pause_ms, group in by_pause(self._core, partitions).items():
            self._scheduler.call_later(pause_ms, partial(self.read, group))

    def _read(self, wanted: tuple[TopicPartition, ...], then: Callable[[], None]) -> Flow[None]:
        """Submit each part as soon as it is read: a topic that is recreated while the others are
        read must not get states of the former one, which would be newer than its own."""
        for start in range(0, len(wanted), STATES_PER_READ):
            yield from self._read_part(wanted[start : start + STATES_PER_READ])
            if self._flows.closed:
                return
        then()

    def _read_part(self, wanted: tuple[TopicPartition, ...]) -> Flow[None]:
        while True:
            states = yield from self._store.read_states(wanted)
            if states is None:
                yield from pause(self._scheduler, RETRY_MS)
                continue
            if not self._may_be_of_successor(states):
                no_successor = False
                break
            is_current = yield from self._fence.is_current()
            if is_current is not None:
                no_successor = is_current
                break
            yield from pause(self._scheduler, RETRY_MS)
        if self._flows.closed:
            return
        self._submit(StatesRead(states=states, no_successor=no_successor))
        self._note_unreadable(wanted, states)

    def _may_be_of_successor(self, states: States) -> bool:
        return any(
            state is not None and state.controller_epoch > self._core.controller_epoch
            for state in states.values()
        )

    def _note_unreadable(self, wanted: tuple[TopicPartition, ...], states: States) -> None:
        self._unreadable.difference_update(states)
        self._unreadable.update(tp for tp in wanted if tp not in states and self._core.exists(tp))
        if self._unreadable and not self._is_to_read:
            self._is_to_read = True
            self._scheduler.call_later(UNREADABLE_PAUSE_MS, self._read_unreadable)

    def _read_unreadable(self) -> None:
        self._is_to_read = False
        unreadable, self._unreadable = self._unreadable, set()
        if unreadable:
            self.read(sorted(unreadable))


def by_pause(
    core: Controller, partitions: Iterable[TopicPartition]
) -> Mapping[int, tuple[TopicPartition, ...]]:
    """Pause in milliseconds -> the partitions to read after it."""
    groups: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        doublings = min(max(core.refusals(tp) - 1, 0), 10)
        pause_ms = min(CONFLICT_PAUSE_MS << doublings, CONFLICT_PAUSE_MAX_MS)
        groups.setdefault(pause_ms, []).append(tp)
    return {pause_ms: tuple(group) for pause_ms, group in groups.items()}
