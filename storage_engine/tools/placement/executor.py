"""Carries a plan out, wave after wave, and waits for each.

Whatever ends the command, the cluster is consistent: brokers end the reassignments that have begun,
and none other begins. A partition whose target is changed by somebody else ends the command.
"""

import time
from collections.abc import Collection, Mapping

from storage_engine.client.admin.log_dirs import describe_log_dirs
from storage_engine.client.admin.reassignment import (
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.progress_line import ProgressLine
from storage_engine.tools.placement.reassign_plan import Plan
from storage_engine.tools.placement.reassign_progress import (
    DONE,
    MOVING,
    WAITS_FOR_DEAD,
    begin,
    end_throttle,
    plan_states,
)
from storage_engine.tools.placement.waves import (
    WaveLimits,
    bytes_copied,
    new_replicas,
    waves,
)

_POLL_S = 0.25
_SETTLED_S = 15.0
"""For so long brokers may tell replicas of before, when a reassignment has ended."""
_SIZES_S = 2.0
"""Between two looks at how much is copied."""
_GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_MIB = 1 << 20


class Executor:
    def __init__(
        self,
        cluster: Cluster,
        progress: ProgressLine,
        *,
        limits: WaveLimits,
        throttle: int | None = None,
    ) -> None:
        """`throttle`: see `begin`."""
        self._cluster = cluster
        self.progress = progress
        self._limits = limits
        self._throttle = throttle
        self.bytes_copied = 0

    def execute(
        self, plan: Plan, layout: Layout, what: str, *, waits_for_dead: bool = True
    ) -> None:
        """Returns when every partition that is still there has its replicas, and is led by the
        first of them if that is in sync; without `waits_for_dead` also when all others wait for
        brokers that have died. Raises CommandError where one is refused, or changed by somebody
        else."""
        copied = bytes_copied(layout, plan)
        total = sum(copied.values())
        partitions, size = 0, 0
        for wave in waves(plan, copied, self._limits):
            self._begin(wave, layout)
            under_way = f"{what}: {partitions} of {len(plan)} partitions"
            self._until_done(
                wave, copied, f"{under_way}, {{}} of {_mib(total)} MiB", size, waits_for_dead
            )
            elect_leaders(self._cluster, wave)
            partitions += len(wave)
            size += sum(copied.get(tp, 0) for tp in wave)
        if plan:
            self.progress.keep(f"{what}: {partitions} partitions, {_mib(size)} MiB: done")
        self.bytes_copied += size

    def cancel(self, partitions: Collection[TopicPartition]) -> None:
        """Take back those of the partitions' reassignments that are under way, and wait."""
        moving = sorted(list_reassignments(self._cluster).keys() & set(partitions))
        if not moving:
            return
        alter_reassignments(self._cluster, dict.fromkeys(moving))
        while left := list_reassignments(self._cluster).keys() & set(moving):
            self.progress.tell(f"cancelled: {len(moving) - len(left)} of {len(moving)} partitions")
            time.sleep(_POLL_S)
        self.progress.keep(f"cancelled: {len(moving)} reassignments")

    def elect(self, plan: Plan) -> None:
        """Have the first replicas lead: a run that was killed may not have come to that. One that
        is not in sync leads later, when the brokers look for it again."""
        for wave in waves(plan, {}, self._limits):
            elect_leaders(self._cluster, wave)

    def end_throttle(self, plan: Plan) -> None:
        """Remove the throttle once nothing of the plan is under way."""
        there = self._cluster.metadata(sorted({tp.topic for tp in plan})).topics
        end_throttle(self._cluster, plan, {tp.topic for tp in plan if tp.topic in there})

    def _begin(self, wave: Plan, layout: Layout) -> None:
        current = {tp: layout.partitions[tp].replicas for tp in wave if tp in layout.partitions}
        copies = any(new_replicas(current.get(tp, ()), target) for tp, target in wave.items())
        throttle = self._throttle if copies else None
        retry = Retry("the reassignments can't begin", Deadline.after(self._cluster.deadline_ms))
        settled_s = time.monotonic() + _SETTLED_S
        left = dict(wave)
        while left:
            refused = begin(self._cluster, left, current, throttle)
            # A topic that is not there any more has nothing to move.
            refused = {tp: error for tp, error in refused.items() if error.code is not _GONE}
            is_settled = time.monotonic() > settled_s
            if final := {tp: e for tp, e in refused.items() if _is_final(e, is_settled)}:
                reasons = "; ".join(f"{tp}: {error}" for tp, error in sorted(final.items())[:5])
                raise CommandError(f"not every reassignment could begin: {reasons}")
            left = {tp: wave[tp] for tp in refused}
            if passing := [error for error in refused.values() if error.retriable]:
                retry.pause(passing[0])
            elif left:
                time.sleep(_POLL_S)

    def _until_done(
        self,
        wave: Plan,
        copied: Mapping[TopicPartition, int],
        text: str,
        before: int,
        waits_for_dead: bool,
    ) -> None:
        differs_s: dict[TopicPartition, float] = {}
        size, looked_s = 0, time.monotonic()
        while True:
            try:
                states = self._states(wave)
            except DeadlineExceededError as error:
                self.progress.tell(f"no answer: {error}")
                continue
            now_s = time.monotonic()
            open_ = {tp: state for tp, state in states.items() if state[0] != DONE}
            self._raise_changed(wave, open_, differs_s, now_s)
            dead = [detail for _, detail in open_.values() if detail.startswith(WAITS_FOR_DEAD)]
            if len(dead) == len(open_) and not (open_ and waits_for_dead):
                return
            if now_s - looked_s >= _SIZES_S and any(copied.get(tp) for tp in open_):
                size, looked_s = self._size_of(wave, open_, copied), now_s
            line = text.format(_mib(before + size))
            waits = f"; {len(dead)} of them: {dead[0]}" if dead else ""
            self.progress.tell(f"{line}, {len(open_)} under way{waits}")
            time.sleep(_POLL_S)

    def _states(self, wave: Plan) -> dict[TopicPartition, tuple[str, str]]:
        """Return the states of the partitions that are there."""
        ongoing = list_reassignments(self._cluster)
        view = self._cluster.metadata(sorted({tp.topic for tp in wave}))
        there = {
            tp: target for tp, target in wave.items() if view.errors.get(tp.topic) is not _GONE
        }
        return plan_states(there, view, ongoing)

    def _raise_changed(
        self,
        wave: Plan,
        states: Mapping[TopicPartition, tuple[str, str]],
        differs_s: dict[TopicPartition, float],
        now_s: float,
    ) -> None:
        """Raise CommandError for partitions that have had other replicas for long."""
        for tp in wave:
            state, detail = states.get(tp, (DONE, ""))
            if state in (DONE, MOVING):
                differs_s.pop(tp, None)
            elif now_s - differs_s.setdefault(tp, now_s) >= _SETTLED_S:
                raise CommandError(
                    f"{tp} was given other replicas by somebody else ({detail}): run the command "
                    "again when that is over"
                )

    def _size_of(
        self,
        wave: Plan,
        under_way: Collection[TopicPartition],
        copied: Mapping[TopicPartition, int],
    ) -> int:
        """Return how many bytes of a wave the new replicas have, as far as their brokers tell."""
        view = self._cluster.metadata(sorted({tp.topic for tp in wave}))
        size: dict[TopicPartition, int] = {}
        for broker in sorted({b for target in wave.values() for b in target} & set(view.brokers)):
            try:
                log_dirs = describe_log_dirs(self._cluster, broker, wave)
            except (KafkaError, DeadlineExceededError):
                continue
            for log_dir in log_dirs:
                for log in log_dir.replicas:
                    topic = view.topics.get(log.tp.topic)
                    there = topic.partitions.get(log.tp.partition) if topic is not None else None
                    if there is not None and broker not in there.isr:
                        size[log.tp] = size.get(log.tp, 0) + log.size_bytes
        done = sum(copied.get(tp, 0) for tp in wave if tp not in under_way)
        return done + sum(min(size.get(tp, 0), copied.get(tp, 0)) for tp in under_way)


def _is_final(error: KafkaError, is_settled: bool) -> bool:
    """A broker that was uncordoned a moment ago is refused until the controller has heard of it."""
    is_passing = error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT and not is_settled
    return not error.retriable and not is_passing


def _mib(size: int) -> str:
    return f"{size / _MIB:,.1f}"
