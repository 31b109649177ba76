"""Finds the moment of a backup in a running cluster: see `cut`."""

import random
import time
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from storage_engine.backup.cut import BackupMoment, Round
from storage_engine.backup.decisions import Decisions, ending_producers, is_over
from storage_engine.backup.errors import BackupError
from storage_engine.backup.reading import Throttle, between, ends_of, read_batches, starts_of
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    StateKey,
    TransactionalIdKey,
)

STATE_TOPIC = "__transaction_state"

_PAUSE_S, _MOST_PAUSE_S = 0.01, 1.0
WAIT_S = 60.0
"""How long markers are waited for. Each is sent again until its leader takes it."""


class MomentReader:
    """Follows the coordinators' logs."""

    def __init__(
        self, cluster: Cluster, topic_id: UUID | None, partitions: Collection[int]
    ) -> None:
        """`topic_id` None: the cluster has no transactions yet."""
        self._cluster = cluster
        self._ids = {} if topic_id is None else {STATE_TOPIC: topic_id}
        self._partitions = [TopicPartition(STATE_TOPIC, each) for each in sorted(partitions)]
        self._read: dict[TopicPartition, int] = {}
        self._decisions = Decisions()

    def find(self, others: Iterable[TopicPartition], *, wait_s: float = WAIT_S) -> BackupMoment:
        """Return the moment, with rounds that make every producer clear. BackupError when that
        takes longer than `wait_s`."""
        if not self._read and self._partitions:
            self._read = starts_of(self._cluster, self._partitions)
            # The next reading is short then.
            self._read_to(self._ends(self._partitions))
        moment = BackupMoment(self._ends(self._partitions), self._decisions)
        self._read_to(moment.ends)
        pending = self._decisions.pending()
        moment.origins = self._decisions.origins()
        others = list(others)
        deadline_s = time.monotonic() + wait_s
        pause_s = _PAUSE_S
        while True:
            content = self._decisions.content
            left = [key for key, each in pending.items() if not is_over(each, content.get(key))]
            moment.tail_ends = self._round(moment, self._partitions, others)
            while (unclear := moment.unclear()) and time.monotonic() < deadline_s:
                states = {moment.coordinator(each) for each in unclear}
                self._round(
                    moment,
                    [tp for tp in self._partitions if tp.partition in states],
                    frozenset().union(*unclear.values()),
                )
                # Not in step with a producer that has a rhythm.
                time.sleep(random.uniform(0, _PAUSE_S))
            if not left and not unclear and moment.rounds[-1].ends is moment.tail_ends:
                return moment
            if time.monotonic() > deadline_s:
                raise self._too_late(left, wait_s)
            if left:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _round(
        self,
        moment: BackupMoment,
        states: Collection[TopicPartition],
        others: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, int]:
        """Read the ends of these logs, one quickly after the other, then what they mean; return
        those of `others`."""
        state_ends = self._ends(states)
        ends = ends_of(self._cluster, others)
        next_state_ends = self._ends(states)
        self._read_to(state_ends)
        ending = ending_producers(self._decisions.pending())
        self._read_to(next_state_ends)
        moment.rounds.append(
            Round(state_ends=state_ends, ending=ending, ends=ends, next_state_ends=next_state_ends)
        )
        return ends

    def _ends(self, states: Collection[TopicPartition]) -> dict[int, int]:
        return {tp.partition: end for tp, end in ends_of(self._cluster, states).items()}

    def _read_to(self, ends: Mapping[int, int]) -> None:
        """Read these logs to the ends."""
        ranges = {
            tp: (self._read[tp], ends[tp.partition])
            for tp in self._partitions
            if tp.partition in ends
        }
        throttle = Throttle(None)
        for tp, records in read_batches(
            self._cluster, ranges, self._ids, throttle=throttle, on_start_moved=_lost
        ):
            for _, batch in between(records, *ranges[tp]):
                self._decisions.take(tp.partition, batch)
        self._read.update({tp: end for tp, (_, end) in ranges.items()})

    def _too_late(self, left: "list[StateKey]", wait_s: float) -> HeadraceError:
        if not left:
            return BackupError(
                f"no pause between the transactions of one producer was found within {wait_s:.0f} "
                "s: repeat the backup when fewer transactions end"
            )
        names = [each.transactional_id for each in left if isinstance(each, TransactionalIdKey)]
        whose = f" of '{names[0]}'" if names else ""
        return BackupError(
            f"the markers of {len(left)} ended transactions{whose} were not written within "
            f"{wait_s:.0f} s: bring the leaders of their partitions back (headrace top shows "
            "partitions that are offline), then repeat the backup"
        )


def _lost(tp: TopicPartition, start: int) -> None:
    raise BackupError(
        f"{tp} was cut to begin at offset {start} while it was read: repeat the backup"
    )
