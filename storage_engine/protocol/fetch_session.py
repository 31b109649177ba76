"""A fetch session as its client keeps it: a follower's fetcher, or a consumer.

Rule: a request names what differs from what the broker remembers; whenever that is in doubt (an
error, a lost answer), the next request names everything and ends the old session. Source: KIP-227.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.fetch import FetchPartition, FetchResponse

NO_SESSION = 0
"""Session id of requests and answers without a session."""

FULL_EPOCH = 0
"""Names all partitions and wants a session."""

NO_SESSION_EPOCH = -1

_LAST_EPOCH = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """Epochs go on from 1 after the last one: 0 has a meaning of its own."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionPart(NamedTuple):
    """What a FetchRequest says of its session."""

    session_id: int
    session_epoch: int
    partitions: Sequence[FetchPartition]
    """All of them, or those that are new or changed."""
    forgotten: Sequence[tuple[str, Sequence[int]]]


class ClientFetchSession:
    """One at a time with one broker; at most one request under way."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[tuple[str, int], FetchPartition | None] = {}
        """What the broker remembers once the present request has reached it; None: to be named
        again."""

    def next(self, wanted: Sequence[FetchPartition]) -> SessionPart:
        """The request that fetches exactly `wanted`."""
        now: dict[tuple[str, int], FetchPartition | None]
        now = {(each.topic, each.partition): each for each in wanted}
        known, self._known = self._known, now
        if self._epoch == FULL_EPOCH:
            return SessionPart(self._id, FULL_EPOCH, wanted, ())
        changed = [each for each in wanted if known.get((each.topic, each.partition)) != each]
        forgotten: dict[str, list[int]] = {}
        if len(now) - len(known) != sum(1 for key in now if key not in known):
            for topic, partition in known:
                if (topic, partition) not in now:
                    forgotten.setdefault(topic, []).append(partition)
        return SessionPart(self._id, self._epoch, changed, list(forgotten.items()))

    def name_again(self, topic: str, partition: int) -> None:
        """An answer was, or will be, dropped: the next request asks for one in any case."""
        key = topic, partition
        if key in self._known:
            self._known[key] = None

    def took(self, response: FetchResponse) -> None:
        """The answer came."""
        if response.error_code:
            known_no_more = response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._begin_anew(NO_SESSION if known_no_more else self._id)
        elif response.session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self._id = response.session_id
            self._epoch = epoch_after(self._epoch)

    def lost(self) -> None:
        """No answer came: what the broker remembers is not known."""
        self._begin_anew(self._id)

    def _begin_anew(self, session_id: int) -> None:
        self._id = session_id
        self._epoch = FULL_EPOCH
