"""How long the acting controller waits before it reads back a state whose write was refused.

Rule: a partition waits for its own refusals only. The pause is doubled while every write of a
partition is refused and nothing new is known of it (somebody removed a topic's nodes by hand); an
answer that never came says nothing about the partition. Source: R-CTL2, R-CTL10.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from storage_engine.core.control.cluster_state import PartitionState
from storage_engine.core.control.controller import Controller
from storage_engine.core.control.controller_events import WriteOutcome
from storage_engine.core.ids import TopicPartition

CONFLICT_PAUSE_MS = 20
"""After the first refusal, and where there was none."""
CONFLICT_PAUSE_MAX_MS = 5_000


@dataclass(frozen=True, slots=True)
class _Refusals:
    times: int
    """In a row."""
    state: PartitionState | None
    """What the controller knew then; with another one the next write is another attempt."""
    topic_id: UUID


class ConflictPauses:
    """For one controller epoch."""

    def __init__(self, core: Controller) -> None:
        """`core`: its state, to be read only."""
        self._core = core
        self._refused: dict[str, dict[int, _Refusals]] = {}
        """Topic -> partition id -> what was refused; none of what was accepted since."""

    def written(self, outcomes: Mapping[TopicPartition, tuple[WriteOutcome, object]]) -> None:
        """Before the core hears of it."""
        for tp, (outcome, _) in outcomes.items():
            info = self._core.topic(tp.topic)
            if outcome is WriteOutcome.ACCEPTED:
                self._forget(tp)
            elif outcome is WriteOutcome.CONFLICT and info is not None:
                times = self._times(tp) + 1
                self._refused.setdefault(tp.topic, {})[tp.partition] = _Refusals(
                    times, self._core.state(tp), info.topic_id
                )

    def by_pause(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[int, tuple[TopicPartition, ...]]:
        """Pause in milliseconds -> the partitions to be read after it."""
        groups: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            doublings = min(max(self._times(tp) - 1, 0), 10)
            pause_ms = min(CONFLICT_PAUSE_MS << doublings, CONFLICT_PAUSE_MAX_MS)
            groups.setdefault(pause_ms, []).append(tp)
        return {pause_ms: tuple(group) for pause_ms, group in groups.items()}

    def forget_topic(self, topic: str) -> None:
        """It is gone; another may get its name."""
        self._refused.pop(topic, None)

    def _times(self, tp: TopicPartition) -> int:
        refusals = self._refused.get(tp.topic, {}).get(tp.partition)
        if refusals is None:
            return 0
        info = self._core.topic(tp.topic)
        is_same = info is not None and info.topic_id == refusals.topic_id
        if is_same and self._core.state(tp) == refusals.state:
            return refusals.times
        # A newer state was read since, or another topic has the name.
        self._forget(tp)
        return 0

    def _forget(self, tp: TopicPartition) -> None:
        of_topic = self._refused.get(tp.topic)
        if of_topic is not None and tp.partition in of_topic:
            del of_topic[tp.partition]
            if not of_topic:
                del self._refused[tp.topic]
