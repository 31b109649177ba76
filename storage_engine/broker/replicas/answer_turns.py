"""How much of a leader's answer a follower takes in one turn of the event loop.

A turn ends when it has had its bytes, partitions or batches; the rest of the answer, also of a
partition, is taken in the next turns.
"""

from collections import deque
from collections.abc import Sequence

from storage_engine.broker.replicas.followed_partition import Followed
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.leader_answers import as_view
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.records.batch_columns import end_of_batches

PARTITIONS_PER_TURN = 256
"""The most partitions of an answer for one turn of the loop, however few bytes they have: some 10
ms. After a failover an answer names thousands whose leader does not know yet that it leads."""

BATCHES_PER_TURN = 512
"""The most batches for one turn of the loop, however few bytes they have: some 1 ms, and some 4 ms
where each is checked by itself. A MiB may have ten thousand."""


class TakenAnswer:
    """A leader's answer that is being processed."""

    __slots__ = ("left", "taken")

    def __init__(self, partitions: Sequence[FetchPartitionResponse]) -> None:
        self.left = deque(partitions)
        self.taken: set[TopicPartition] = set()

    def put_back(self, tp: TopicPartition, rest: FetchPartitionResponse) -> None:
        """The rest of a partition's records is next."""
        self.taken.discard(tp)
        self.left.appendleft(rest)


class FollowerTurn:
    """The work that one turn of the loop has done."""

    __slots__ = (
        "brought",
        "leaving",
        "room",
        "room_batches",
        "room_bytes",
        "shortened",
        "watched",
    )

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self.room = PARTITIONS_PER_TURN
        self.room_batches = BATCHES_PER_TURN
        self.brought: list[Followed] = []
        self.leaving: list[Followed] = []
        self.shortened: list[HostedPartition] = []
        self.watched: list[HostedPartition] = []

    @property
    def is_over(self) -> bool:
        return self.room_bytes <= 0 or self.room <= 0 or self.room_batches <= 0


def split(
    answer: FetchPartitionResponse, most: int
) -> tuple[FetchPartitionResponse, FetchPartitionResponse | None, int]:
    """Return the answer with its first `most` batches, one with the others if there are any, and
    the number of the first."""
    if not answer.records:
        return answer, None, 0
    records = as_view(answer.records)
    size, count = end_of_batches(records, most)
    if size == len(records):
        return answer, None, count
    return answer._replace(records=records[:size]), answer._replace(records=records[size:]), count
