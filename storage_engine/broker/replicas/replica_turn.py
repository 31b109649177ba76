"""What one replica does at the end of a turn of the event loop: the high watermark moves, those who
wait are woken, and what must be flushed is.

An append only marks the turn, which then ends once, however many requests it had. Steps of the
leader's state outside of it are carried out here as well. Source: R-REP2 to R-REP6.
"""

from typing import TYPE_CHECKING

from storage_engine.core.replication.partition import (
    Appended,
    Effect,
    HighWatermarkAdvanced,
    LeaderPartition,
    ProposeIsr,
    ReadState,
)

if TYPE_CHECKING:
    from storage_engine.broker.replicas.hosted_partition import HostedPartition


class ReplicaTurn:
    """Whether something is due for a replica at the end of this turn, and its end."""

    __slots__ = ("_has_grown", "_is_due", "_replica", "_unflushed_appends")

    def __init__(self, replica: "HostedPartition") -> None:
        self._replica = replica
        self._is_due = False
        """True while `end` is due."""
        self._has_grown = False
        """True while it is due for more than readers of the high watermark."""
        self._unflushed_appends = 0
        """Appends of this turn that wait for a flush."""

    def note_append(self) -> None:
        """The leader has appended a batch."""
        if self._replica.config.flush_before_ack:
            self._unflushed_appends += 1
        if not self._has_grown:
            self.mark()

    def mark(self) -> None:
        """Has high watermark and waiting requests checked at the end of this turn of the loop."""
        self._has_grown = True
        self._replica.follower_watches.note()
        if not self._is_due:
            self._end_soon()

    def _end_soon(self) -> None:
        self._is_due = True
        replica = self._replica
        replica.ports.end_of_turn.call(replica.topic_partition, self.end)

    def end(self) -> None:
        """Applies the appends of this turn."""
        has_grown, self._has_grown = self._has_grown, False
        self._is_due = False
        replica = self._replica
        if has_grown:
            replica.note_change()
        leader = replica.leader
        if leader is not None and has_grown:
            event = Appended(log_end_offset=replica.log.log_end_offset)
            self.carry_out(leader, leader.step(event))
            batches, self._unflushed_appends = self._unflushed_appends, 0
            if batches and replica.must_flush:
                replica.flush(batches=batches)
        if has_grown:
            # First: producers wait for them. Those in sync have the same to read.
            replica.log.reads.share(replica.follower_watches.wake)
        replica.data_waiters.wake()

    def carry_out(self, leader: LeaderPartition, effects: list[Effect]) -> None:
        """Does what follows from a step of the leader's state."""
        replica = self._replica
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self._high_watermark_advanced()
                case ProposeIsr():
                    replica.ports.propose_isr(replica, leader, effect)
                case ReadState():
                    replica.ports.read_isr(replica, leader)

    def _high_watermark_advanced(self) -> None:
        replica = self._replica
        replica.ports.changes.high_watermarks = True
        replica.log.note_high_watermark(replica.high_watermark)
        replica.produce_waiters.wake()
        replica.follower_watches.note()
        if not self._is_due and replica.data_waiters:
            self._end_soon()
