"""Fetch sessions: the broker remembers which partitions a client fetches, so that requests and
answers name only changes.

    session id, epoch   meaning of a request
    0, -1               no session: all partitions are named, all are answered
    any, 0              all partitions are named; the broker may open a session (and ends the old)
    any, -1             likewise, without a session; the old one ends
    id, n > 0           only what has changed since request n - 1, and what is forgotten

A partition is left out of an answer only if the answer has nothing new for the client: it was not
named in this request, has no records and no error, and its watermarks are those of the last answer.
When slots or memory are used up, a request is answered without a session. A session belongs to the
principal and the address that opened it: to anybody else it is not there. Source: KIP-227, R-NET3.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from secrets import randbelow

from storage_engine.core.errors import ErrorCode
from storage_engine.core.fair_queue import Share
from storage_engine.core.ports import Clock
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import (
    FULL_EPOCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    epoch_after,
)
from storage_engine.protocol.typed.projection import TypedWant

EVICTION_MS = 120_000
"""A session unused for this long makes room for any other; one that is older makes room for a
larger one. Kafka's min.incremental.fetch.session.eviction.ms, which is no setting there either."""

REMEMBERED_PARTITIONS_MAX = 200_000
"""The most partitions of all sessions together, some 400 bytes each: slots alone would not limit
the memory, because one request may name a million partitions. A partition with many wanted columns
of a typed topic, or a filter by many values, counts as several."""

WANTED_PER_PARTITION = 20
"""The number of columns and values that take the memory of a partition."""

SESSION_PARTITIONS_MAX = 15_000
"""The most partitions of a session: to store them, and to free as many to make room, takes some 15
ms. A client that fetches more is served without a session."""

Key = tuple[str, int]


class _Remembered:
    """A partition of a session."""

    __slots__ = ("sent", "wanted", "weight")

    def __init__(self, wanted: FetchPartition, weight: int) -> None:
        self.wanted = wanted
        self.weight = weight
        self.sent: tuple[int, int, int] | None = None
        """High watermark, last stable offset and log start as the client knows them; None: the
        partition is answered in any case."""


class FetchSession:
    """The partitions of one client's session, in the order in which they are served."""

    __slots__ = (
        "_wanted",
        "created_ms",
        "epoch",
        "is_follower",
        "owner",
        "partitions",
        "session_id",
        "weight",
    )

    def __init__(self, session_id: int, *, is_follower: bool, now_ms: int) -> None:
        self.owner: Share = ()
        """The principal that opened the session, and its address."""
        self.session_id = session_id
        self.epoch = FULL_EPOCH + 1
        """The epoch of the next request."""
        self.is_follower = is_follower
        self.created_ms = now_ms
        self.partitions: dict[Key, _Remembered] = {}
        self.weight = 0
        """The memory of the partitions, in partitions of the usual size."""
        self._wanted: list[FetchPartition] | None = None

    def takes(self, request: FetchRequest) -> bool:
        """Whether this request may continue the session."""
        return True

    def used(self, now_ms: int) -> None:
        """Note that a request continues the session."""

    def close(self) -> None:
        """Release the session's resources: it has ended."""

    def update(
        self, named: Iterable[FetchPartition], forgotten: Iterable[tuple[str, Sequence[int]]]
    ) -> None:
        """Apply the changes of partitions in a request."""
        partitions = self.partitions
        for topic, indexes in forgotten:
            for index in indexes:
                dropped = partitions.pop((topic, index), None)
                if dropped is not None:
                    self._wanted = None
                    self.weight -= dropped.weight
        want: TypedWant | None = None
        weight = 1
        for wanted in named:
            self._wanted = None
            if wanted.want is not want:
                want = wanted.want
                weight = _weight(want)
            key = wanted.topic, wanted.partition
            remembered = partitions.get(key)
            if remembered is None:
                partitions[key] = _Remembered(wanted, weight)
                self.weight += weight
            else:
                self.weight += weight - remembered.weight
                remembered.weight = weight
                remembered.wanted = wanted
                remembered.sent = None

    def wanted(self) -> list[FetchPartition]:
        """All partitions, with the most recently served ones at the end."""
        if self._wanted is None:
            self._wanted = [each.wanted for each in self.partitions.values()]
        return self._wanted

    def news(self, answers: Iterable[FetchPartitionResponse]) -> list[FetchPartitionResponse]:
        """The answers with something new for the client."""
        partitions = self.partitions
        news = []
        for answer in answers:
            key = answer.topic, answer.partition
            remembered = partitions[key]
            watermarks = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
            if answer.records:
                # Moved to the end: a full answer serves the others first next time.
                partitions[key] = partitions.pop(key)
                self._wanted = None
            elif (
                remembered.sent == watermarks
                and not answer.error_code
                and answer.diverging_epoch is None
                and answer.preferred_read_replica < 0
            ):
                continue
            is_error = answer.error_code or answer.diverging_epoch is not None
            # A failure is sent again as long as it lasts, and its end once.
            remembered.sent = None if is_error else watermarks
            news.append(answer)
        return news


MakeSession = Callable[[int, FetchRequest, int], FetchSession]
"""(id, the request that opens it, monotonic ms) -> a session without partitions."""


def plain_session(session_id: int, request: FetchRequest, now_ms: int) -> FetchSession:
    """A session each of whose requests reads all of its partitions."""
    return FetchSession(session_id, is_follower=request.replica_id >= 0, now_ms=now_ms)


class SessionFetch:
    """A fetch request with all partitions of its session that are to be read, and the form of its
    response."""

    __slots__ = ("_open", "epoch", "request", "session")

    def __init__(
        self,
        request: FetchRequest,
        session: FetchSession | None = None,
        open_: "Callable[[FetchRequest], FetchSession | None] | None" = None,
    ) -> None:
        """`open_`: opens a session with the answer, where there is room."""
        self.request = request
        """The request as if the client had named all partitions."""
        self.session = session
        """The session that the request continues; None where it names all its partitions."""
        self.epoch = 0 if session is None else session.epoch
        self._open = open_

    def response(self, answers: Sequence[FetchPartitionResponse]) -> FetchResponse:
        """Make the response from the answers to `request`. To be called once, when it is sent."""
        session = self.session
        if session is not None:
            if session.epoch != self.epoch:
                # A later request of the session has arrived while this one waited.
                return FetchResponse(
                    (), int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.session_id
                )
            return FetchResponse(session.news(answers), 0, session.session_id)
        if self._open is not None:
            session = self._open(self.request)
            if session is not None:
                session.news(answers)
                return FetchResponse(answers, 0, session.session_id)
        return FetchResponse(answers)


class FetchSessions:
    """The sessions of one broker: `max.incremental.fetch.session.cache.slots` of them."""

    def __init__(
        self,
        slots: int,
        clock: Clock,
        *,
        partitions_max: int = REMEMBERED_PARTITIONS_MAX,
        make: MakeSession = plain_session,
    ) -> None:
        self._make = make
        self._slots = slots
        self._clock = clock
        self._partitions_max = partitions_max
        self._used: dict[FetchSession, int] = {}
        """The monotonic time in ms when each session was last used, in that order."""
        self._by_id: dict[int, FetchSession] = {}
        self._held_by: Counter[Share] = Counter()
        """The number of sessions of each owner."""
        self.remembered = 0
        """The weight of all sessions."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._by_id.values())

    def begin(self, request: FetchRequest, owner: Share) -> SessionFetch | FetchResponse:
        """The partitions to read for a request, or an error as the whole response. `owner`: the
        principal that sends it, and its address."""
        epoch = request.session_epoch
        session = self._by_id.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if epoch in (NO_SESSION_EPOCH, FULL_EPOCH):
            if session is not None:
                self._end(session)
            if epoch == FULL_EPOCH and request.partitions:
                return SessionFetch(request, open_=partial(self.open, owner))
            return SessionFetch(request)
        if session is None or not session.takes(request):
            return FetchResponse((), int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), NO_SESSION)
        if session.epoch != epoch:
            code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return FetchResponse((), int(code), request.session_id)
        # A fetch of this session that still waits may bring no news of it.
        session.epoch = epoch_after(epoch)
        before = session.weight
        session.update(request.partitions, request.forgotten)
        self.remembered += session.weight - before
        size = len(session.partitions)
        is_too_much = self.remembered > self._partitions_max or size > SESSION_PARTITIONS_MAX
        if is_too_much and session.weight > before:
            self._end(session)
            return FetchResponse((), int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), NO_SESSION)
        self._touch(session)
        full = request.of(session.wanted())
        if not session.partitions:
            self._end(session)
            return SessionFetch(full)
        return SessionFetch(full, session)

    def open(self, owner: Share, request: FetchRequest) -> FetchSession | None:
        """A session for a request that names all its partitions; None where there is no room."""
        if len(request.partitions) > SESSION_PARTITIONS_MAX:
            return None
        now_ms = self._clock.monotonic_ms()
        session = self._make(self._new_id(), request, now_ms)
        session.owner = owner
        session.update(request.partitions, ())
        size = session.weight
        if size > self._partitions_max or not self._slots:
            return None
        may_go = self._may_go_for(session, now_ms)
        while len(self) >= self._slots or self.remembered + size > self._partitions_max:
            least = next(may_go, None)
            if least is None:
                return None
            self._end(least)
        self._by_id[session.session_id] = session
        self._held_by[owner] += 1
        self.remembered += size
        self._touch(session)
        return session

    def _new_id(self) -> int:
        while True:
            session_id = 1 + randbelow((1 << 31) - 1)
            if session_id not in self._by_id:
                return session_id

    def _touch(self, session: FetchSession) -> None:
        now_ms = self._clock.monotonic_ms()
        self._used.pop(session, None)
        self._used[session] = now_ms
        session.used(now_ms)

    def _end(self, session: FetchSession) -> None:
        del self._by_id[session.session_id]
        del self._used[session]
        self._held_by[session.owner] -= 1
        if not self._held_by[session.owner]:
            del self._held_by[session.owner]
        self.remembered -= session.weight
        session.close()

    def _may_go_for(self, new: FetchSession, now_ms: int) -> Iterator[FetchSession]:
        """Yield the sessions that make room: those unused for too long, then those that may go, the
        least important first. A follower's session is more important than any client's, then a
        larger one than a smaller one. An owner with more sessions than the new one's has some to
        spare. All are collected at once, since a large session may need the room of many; the
        caller ends each before it asks for the next."""
        for session, used_ms in list(self._used.items()):
            if now_ms - used_ms <= EVICTION_MS:
                break
            yield session
        held, held_by = self._held_by[new.owner] + 1, self._held_by
        spare = [each for each in self._used if held_by[each.owner] > held and not each.is_follower]
        for session in sorted(spare, key=_importance):
            if held_by[session.owner] > held:
                yield session
        may_go = [
            session
            for session in self._used
            if now_ms - session.created_ms > EVICTION_MS
            or (new.is_follower and not session.is_follower)
        ]
        for session in sorted(may_go, key=_importance):
            if _importance(new) <= _importance(session):
                break
            yield session


def _weight(want: TypedWant | None) -> int:
    """The memory of a partition with this want, in partitions of the usual size."""
    if want is None:
        return 1
    size = len(want.column_ids)
    for comparison in want.comparisons:
        for value in comparison.values:
            size += 1 + (len(value) // 16 if isinstance(value, str | bytes) else 0)
    return 1 + size // WANTED_PER_PARTITION


def _importance(session: FetchSession) -> tuple[bool, int]:
    return session.is_follower, len(session.partitions)
