"""The replicas for which upkeep may have something to do: to flush, to remove deleted files, to end
a change that was cut short. Thousands of idle ones then cost upkeep nothing.

Appends report their replica. Unreported changes, such as files that a truncation has deleted, are
found by a check of every replica once in `ROUND_MS`, a few of them at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.partition_ports import ReplicaChanges
from storage_engine.core.ids import TopicPartition

ROUND_MS = 10_000
"""How long a check of all replicas takes."""

Hosted = Callable[[TopicPartition], HostedPartition | None]


class ChangedReplicas:
    """Invariant: a replica that is to be flushed is in here, unless its change was not reported and
    it was not checked since."""

    def __init__(self, changes: ReplicaChanges) -> None:
        self._told = changes.logs
        self._round: Iterator[HostedPartition] = iter(())
        self._left = 0
        """The part of the next check that is less than a whole replica, times `ROUND_MS`."""

    def present(self, hosted: Hosted) -> list[HostedPartition]:
        """The replicas that may need upkeep; the settled ones are forgotten."""
        told, found = self._told, []
        for tp in list(told):
            partition = hosted(tp)
            if partition is None or _is_settled(partition):
                del told[tp]
            else:
                found.append(partition)
        return found

    def look_around(self, replicas: Iterable[HostedPartition], passed_ms: int) -> None:
        """Check the share of all replicas that is due after so much time."""
        everything = list(replicas)
        due = len(everything) * passed_ms + self._left
        count, self._left = divmod(due, ROUND_MS)
        looked_at = list(islice(self._round, count))
        if len(looked_at) < count:
            # A new round; replicas that came or went meanwhile may be in it, or not.
            self._round = iter(everything)
            looked_at += islice(self._round, min(count - len(looked_at), len(everything)))
        for partition in looked_at:
            if not _is_settled(partition):
                self._told[partition.topic_partition] = None


def _is_settled(partition: HostedPartition) -> bool:
    """Whether the replica needs no upkeep, now or later, until it changes."""
    log = partition.log
    segments = log.segments
    return (
        not log.flush_state.may_be_due
        and not segments.has_deleted_files
        and not segments.is_cut_short
    )
