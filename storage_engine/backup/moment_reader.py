"""Finds the moment of a backup in a running cluster: see `cut`."""

import time
from collections.abc import Collection, Iterable
from uuid import UUID

from storage_engine.backup.cut import Moment, Round
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

    def find(self, others: Iterable[TopicPartition], *, wait_s: float = WAIT_S) -> Moment:
        """Return the moment, with rounds that make every producer clear; the ends of the last
        round are behind all markers that were decided before. BackupError when that takes longer
        than `wait_s`."""
        if not self._read and self._partitions:
            self._read = starts_of(self._cluster, self._partitions)
            # The next reading is short then.
            self._follow()
        ends = self._follow()
        pending = self._decisions.pending()
        origins = self._decisions.origins()
        moment = Moment(ends, self._decisions, origins=origins)
        others = list(others)
        deadline_s = time.monotonic() + wait_s
        pause_s = _PAUSE_S
        while True:
            state_ends, ending = ends, ending_producers(self._decisions.pending())
            content = self._decisions.content
            left = [key for key, each in pending.items() if not is_over(each, content.get(key))]
            log_ends = ends_of(self._cluster, others)
            ends = self._follow()
            moment.rounds.append(
                Round(state_ends=state_ends, ending=ending, ends=log_ends, next_state_ends=ends)
            )
            if not left and not moment.unclear():
                return moment
            if time.monotonic() > deadline_s:
                raise self._too_late(left, wait_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _follow(self) -> dict[int, int]:
        """Read the logs to their present ends, and return these."""
        if not self._partitions:
            return {}
        ends = ends_of(self._cluster, self._partitions)
        ranges = {tp: (self._read[tp], end) for tp, end in ends.items()}
        throttle = Throttle(None)
        for tp, records in read_batches(
            self._cluster, ranges, self._ids, throttle=throttle, on_start_moved=_lost
        ):
            for _, batch in between(records, *ranges[tp]):
                self._decisions.take(tp.partition, batch)
        self._read.update(ends)
        return {tp.partition: end for tp, end in ends.items()}

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
