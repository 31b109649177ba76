"""The client's side of a fetch session: that of a follower's fetcher, or of a consumer.

A request names the partitions that differ from the session on the broker; whenever that is in doubt
(an error, a lost answer), the next request names all and ends the old session. Source: KIP-227.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.fetch import FetchPartition, FetchResponse

NO_SESSION = 0
"""The session id of requests and answers without a session."""

FULL_EPOCH = 0
"""The epoch of a request that names all partitions and asks for a session."""

NO_SESSION_EPOCH = -1

_LAST_EPOCH = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """Return the next epoch; after the last one it is 1, since 0 has a meaning of its own."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionPart(NamedTuple):
    """The fields of a FetchRequest that belong to its session."""

    session_id: int
    session_epoch: int
    partitions: Sequence[FetchPartition]
    """All partitions of the session, or those that are new or changed."""
    forgotten: Sequence[tuple[str, Sequence[int]]]


class ClientFetchSession:
    """The session with one broker; at most one request is under way."""

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[tuple[str, int], FetchPartition | None] = {}
        """The partitions that the broker remembers once it has the present request; None for one
        that has to be named again."""

    def next(self, wanted: Sequence[FetchPartition]) -> SessionPart:
        """Return the session's part of a request that fetches exactly `wanted`."""
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

    @property
    def is_new(self) -> bool:
        """Whether the next request names everything."""
        return self._epoch == FULL_EPOCH

    def next_changed(
        self, wanted: Iterable[FetchPartition], unwanted: Iterable[tuple[str, int]]
    ) -> SessionPart:
        """Like `next` of the last request's partitions, with `wanted` added or changed, and without
        `unwanted`; for a session that is not new."""
        known = self._known
        forgotten: dict[str, list[int]] = {}
        for key in unwanted:
            if key in known:
                del known[key]
                forgotten.setdefault(key[0], []).append(key[1])
        changed = []
        for each in wanted:
            key = each.topic, each.partition
            if known.get(key) != each:
                known[key] = each
                changed.append(each)
        return SessionPart(self._id, self._epoch, changed, list(forgotten.items()))

    def name_again(self, topic: str, partition: int) -> None:
        """Have the next request name the partition in any case, because an answer for it was, or
        will be, dropped."""
        key = topic, partition
        if key in self._known:
            self._known[key] = None

    def took(self, response: FetchResponse) -> None:
        """Record the answer."""
        if response.error_code:
            known_no_more = response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._begin_anew(NO_SESSION if known_no_more else self._id)
        elif response.session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self._id = response.session_id
            self._epoch = epoch_after(self._epoch)

    def lost(self) -> None:
        """Record that no answer came: it is unknown what the broker remembers."""
        self._begin_anew(self._id)

    def _begin_anew(self, session_id: int) -> None:
        self._id = session_id
        self._epoch = FULL_EPOCH
