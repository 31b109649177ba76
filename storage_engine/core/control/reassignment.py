"""Moving a partition to other replicas: values and rules of one reassignment.

Rule: the assignment in ZooKeeper is original + target until everything else is done, and original
and target stand beside it, so that any later controller can go on from what it reads. The old
replicas go only when every target has been in the ISR and a write of the partition's state has left
the old ones out (R-CTL8). Source: document 001 (reassignment of partitions, steps 1 to 11), KIP-455
(cancelling, several at once).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from storage_engine.core.control.election import Elected
from storage_engine.core.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment under way. Original equal to target: it is being taken back."""

    original: tuple[BrokerId, ...]
    """The replicas before the first step."""
    target: tuple[BrokerId, ...]
    """The replicas after the last one, the preferred one first."""

    @property
    def is_cancellation(self) -> bool:
        return self.original == self.target

    def is_caught_up(self, isr: Collection[BrokerId], live: Collection[BrokerId]) -> bool:
        """Step 4: every target is in sync.

        On the way back only the originals that live are waited for, and one is enough: where a dead
        one kept the way forward from ending, it must not keep the way back from it too.
        """
        if self.is_cancellation:
            back = [replica for replica in self.target if replica in live]
            return bool(back) and all(replica in isr for replica in back)
        return all(replica in isr for replica in self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What the topic's node says of one partition."""

    replicas: tuple[BrokerId, ...]
    reassignment: Reassignment | None = None

    def towards(self, target: Sequence[BrokerId]) -> "Assigned":
        """Step 1: begin to move to `target`, or turn a move under way into that direction.

        Replicas of an earlier direction stay until the end: one of them may lead, or be needed to
        have enough in sync.
        """
        under_way = self.reassignment
        original = self.replicas if under_way is None else under_way.original
        return Assigned(
            replicas=tuple(dict.fromkeys((*original, *target, *self.replicas))),
            reassignment=Reassignment(original=original, target=tuple(target)),
        )

    def finished(self) -> "Assigned":
        """Step 10."""
        assert self.reassignment is not None
        return Assigned(replicas=self.reassignment.target)

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Replicas that were not there before, in the order of the target."""
        move = self.reassignment
        return () if move is None else tuple(r for r in move.target if r not in move.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """Replicas that will not be there afterwards."""
        move = self.reassignment
        return () if move is None else tuple(r for r in self.replicas if r not in move.target)


def reassignment_election(
    move: Reassignment,
    leader: BrokerId,
    isr: Sequence[BrokerId],
    *,
    live: Collection[BrokerId],
    candidates: Collection[BrokerId],
) -> Elected | None:
    """Steps 7 and 8, as two writes: first a target leads, then only targets are in sync.

    None while the targets are not caught up, or none of them may lead. The second is written even
    where it changes nothing: its acceptance makes void whatever the leader has proposed, and that
    leader learns from it that the others are no replicas any more, so that none of those can come
    into the ISR again once its files are deleted.
    """
    if not move.is_caught_up(isr, live):
        return None
    if leader not in move.target:
        for replica in move.target:
            if replica in isr and replica in candidates:
                return Elected(leader=replica, isr=tuple(isr))
        return None
    return Elected(leader=leader, isr=tuple(r for r in isr if r in move.target), retires=True)


def target_problem(
    target: Sequence[BrokerId], present: Collection[BrokerId], live: Collection[BrokerId]
) -> str | None:
    """Why a partition with the replicas `present` can't be moved to `target`; None: it can.

    A broker that holds a replica may be dead, one that shall get its first must live.
    """
    if not target:
        return "needs at least one broker"
    if len(set(target)) != len(target):
        return f"names a broker twice: {list(target)}"
    absent = [replica for replica in target if replica not in present and replica not in live]
    if absent:
        names = ", ".join(map(str, absent))
        return f"names brokers that are not alive: {names}; alive are {sorted(live)}"
    return None
