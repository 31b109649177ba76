"""Fetch: consumers and followers read; both may wait for data.

Bytes that are not in the page cache are first read from the disk, by `cold_reads`; typed batches
are first converted for clients that don't know them, by `foreign_answers`.

Below this handler every request names all its partitions, each once. `fetch_sessions` adds the
partitions that a request in a session leaves out, and removes unchanged ones from the answer;
`fetched_topics` does the same with ids of topics. A fetch of many partitions is read in several
turns of the event loop: each answer is true at the time of its own read. Source: R-REP2, R-NET2,
KIP-227, KIP-516.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.cold_reads import FILES_PER_LOAD
from storage_engine.broker.requests.current_leaders import CurrentLeaders
from storage_engine.broker.requests.delayed_fetch import FEW_PARTITIONS
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader
from storage_engine.broker.requests.fetch_sessions import FetchSessions, SessionFetch
from storage_engine.broker.requests.fetch_waits import UNKNOWN, FetchWaits, with_ids, with_names
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.broker.requests.foreign_answers import ForeignAnswers
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.requests.typed_reads import UnconvertedSlice, is_cold_slice
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.fetch import (
    CONSUMER_REPLICA_ID,
    FIRST_WITH_LEADERS,
    FIRST_WITH_NODES,
    FIRST_WITH_TOPIC_IDS,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import NO_SESSION_EPOCH

Unreadable = Callable[[ApiCall[FetchResponse], int, Iterable[str]], Collection[str]]
"""(call, replica id, topics) -> the topics that the client may not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchHandler:
    """Answers Fetch."""

    sessions: FetchSessions
    reader: PartitionReader
    foreign_answers: ForeignAnswers
    waits: FetchWaits
    metadata: MetadataCache
    leaders: CurrentLeaders
    unreadable: Unreadable | None = None
    """Returns the topics that a consumer may not read; None where all clients may read all."""

    def handle(self, call: ApiCall[FetchResponse], request: FetchRequest) -> Steps:
        if request.replica_id >= 0 and ends_long_poll(request):
            self.waits.of_followers.end(request.replica_id)
            call.respond(FetchResponse([]))
            return
        request = yield from _with_each_once(request)
        fetch = self.sessions.begin(request, call.owner)
        if isinstance(fetch, FetchResponse):
            call.respond(fetch)
        else:
            yield from _Answering(self, call, fetch, fetch.request).begin()


def ends_long_poll(request: FetchRequest) -> bool:
    """Whether it fetches nothing and has no session: see FollowerWaits."""
    return request.session_epoch == NO_SESSION_EPOCH and not request.partitions


def _with_each_once(request: FetchRequest) -> Generator[None, None, FetchRequest]:
    """When a partition is named twice, the last entry counts, as in Kafka."""
    if len(request.partitions) <= 1:
        return request
    named: dict[tuple[str, int], FetchPartition] = {}
    for some in _few_each(request.partitions):
        if named:
            yield None
        named.update({(item.topic, item.partition): item for item in some})
    if len(named) == len(request.partitions):
        return request
    return request._replace(partitions=list(named.values()))


def _few_each(partitions: Sequence[FetchPartition]) -> list[Sequence[FetchPartition]]:
    """Slices of at most FEW_PARTITIONS, at least one."""
    if len(partitions) <= FEW_PARTITIONS:
        return [partitions]
    starts = range(0, len(partitions), FEW_PARTITIONS)
    return [partitions[start : start + FEW_PARTITIONS] for start in starts]


@dataclass(slots=True)
class _Answering:
    """A fetch on its way to its answer."""

    handler: FetchHandler
    call: ApiCall[FetchResponse]
    fetch: SessionFetch
    request: FetchRequest
    """The request with all partitions to read, by the names of their topics."""
    asked_for: list[str | None] | None = None
    """By position the topic whose right is checked again at the answer, or None where the right was
    missing at the start; None as a whole where all clients may read all."""

    def begin(self) -> Steps:
        """Read all partitions for the first time; answer or wait."""
        asked, reader, session = self.request, self.handler.reader, self._live_session
        clock = None if session is None else session.clock
        partitions: list[FetchPartition] = []
        has_everything = session is not None
        for some in _few_each(asked.partitions):
            if partitions:
                yield None
            named = self._by_names(some)
            if named is None:
                return
            named = self._readable(named)
            has_everything = reader.note_progress(asked, named, clock) and has_everything
            partitions += named
        self.request = asked.of(partitions)
        may_wait = asked.max_wait_ms > 0 and asked.min_bytes > 0
        may_wait &= self._live_session is not None and self.call.version < FIRST_WITH_TOPIC_IDS
        # The fetch of a follower that has everything waits for its session's news without a read.
        if not (has_everything and may_wait and self._waits(FetchRead())):
            read = yield from self._read()
            if read.is_enough(self.request) or not self._waits(read):
                yield from self._answer(read)

    @property
    def _live_session(self) -> FollowerSession | None:
        """The follower's session, if this is its latest request."""
        session = self.fetch.session
        if isinstance(session, FollowerSession) and session.epoch == self.fetch.epoch:
            return session
        return None

    def _by_names(self, asked: Sequence[FetchPartition]) -> Sequence[FetchPartition] | None:
        """The partitions with their topics' names; None when the request was refused."""
        if self.call.version < FIRST_WITH_TOPIC_IDS:
            return asked
        try:
            return with_names(self.handler.metadata, asked)
        except ValueError:
            self.call.respond(FetchResponse((), int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)))
            return None

    def _readable(self, named: Sequence[FetchPartition]) -> Sequence[FetchPartition]:
        """Replace each topic that the consumer may not read by an unknown one, which is answered at
        once, whatever records there are."""
        unreadable, replica_id = self.handler.unreadable, self.request.replica_id
        if unreadable is None or replica_id >= 0:
            return named
        topics = [item.topic for item in named]
        wanted = {topic for topic in topics if topic != UNKNOWN}
        refused = unreadable(self.call, replica_id, wanted)
        if self.asked_for is None:
            self.asked_for = []
        self.asked_for += [None if topic in refused else topic for topic in topics]
        if not refused:
            return named
        return [item._replace(topic=UNKNOWN) if item.topic in refused else item for item in named]

    def _permitted(
        self, asked_for: Sequence[str | None], answers: Sequence[FetchPartitionResponse]
    ) -> Generator[None, None, list[FetchPartitionResponse]]:
        """The answers, with an error for topics that may not, or may no longer, be read."""
        unreadable = self.handler.unreadable
        assert unreadable is not None
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        permitted = list(answers)
        for start in range(0, len(asked_for), FEW_PARTITIONS):
            some = asked_for[start : start + FEW_PARTITIONS]
            topics = {topic for topic in some if topic}
            refused = unreadable(self.call, self.request.replica_id, topics)
            for place, topic in enumerate(some, start):
                if topic is None or topic in refused:
                    wanted = self.fetch.request.partitions[place]
                    permitted[place] = FetchPartitionResponse(wanted.topic, wanted.partition, code)
            yield None
        return permitted

    def _waits(self, read: FetchRead) -> bool:
        """Wait for more records, if the request may; return whether it waits."""
        session = self._live_session
        request = self.request if session is None else self.fetch.request
        return self.handler.waits.wait(
            request, read, session=session, finish=self._finish, gone=self._gone
        )

    def _finish(self, request: FetchRequest, read: FetchRead | None) -> None:
        """Continue after the wait; a session's request now has its due partitions."""
        self.call.run(self._end_wait(request, read))

    def _end_wait(self, request: FetchRequest, read: FetchRead | None) -> Steps:
        if self._live_session is not None:
            named = self._by_names(request.partitions)
            if named is None:
                return
            self.request, self.fetch.request = request.of(named), request
        if read is None:
            read = yield from self._read()
        yield from self._answer(read)

    def _read(self) -> Generator[None, None, FetchRead]:
        request = self.request
        read = FetchRead(request.max_bytes)
        for some in _few_each(request.partitions):
            if read.partitions:
                yield None
            self.handler.reader.read(request, some, read)
        return read

    def _answer(self, read: FetchRead) -> Steps:
        """Answer as soon as the bytes are at hand. Where some must be read from a disk, or
        converted, all is read again afterwards; of many partitions only the first few of them, and
        the others are left to the client's next fetch."""
        request = self.request
        missed = {partition.topic_partition for partition, _, _ in read.cold}
        later = []
        for place, answer in enumerate(read.partitions):
            if place and place % FEW_PARTITIONS == 0:
                yield None
            if (
                isinstance(answer.records, UnconvertedSlice)
                or is_cold_slice(answer.records)
                or (missed and (answer.topic, answer.partition) in missed)
            ):
                later.append(place)
        if not later:
            yield from self._send(read)
            return
        if len(request.partitions) <= FEW_PARTITIONS:
            self._answer_later(request, read, lambda result: self.call.run(self._send(result)))
            return
        room = read.room
        for place in later:
            answer = read.partitions[place]
            room += len(answer.records or b"")
            read.partitions[place] = answer._replace(records=None)
        first = later[:FILES_PER_LOAD]
        few = request._replace(
            partitions=[request.partitions[place] for place in first], max_bytes=room
        )

        def send(result: FetchRead) -> None:
            for place, answer in zip(first, result.partitions, strict=True):
                read.partitions[place] = answer
            self.call.run(self._send(read))

        self._answer_later(few, self.handler.reader.read(few), send)

    def _answer_later(
        self, request: FetchRequest, read: FetchRead, send: Callable[[FetchRead], None]
    ) -> None:
        self.handler.foreign_answers.answer(request, read, self.call.share, send, self._gone)

    def _gone(self) -> bool:
        return self.call.exchange.closed

    @property
    def _tells_leaders(self) -> bool:
        """Whether to name leaders: followers learn of leaders from the controller."""
        is_consumer = self.request.replica_id == CONSUMER_REPLICA_ID
        return is_consumer and self.call.version >= FIRST_WITH_LEADERS

    def _send(self, read: FetchRead) -> Steps:
        self.handler.reader.note_sent(self.request, read.partitions)
        answers: Sequence[FetchPartitionResponse] = read.partitions
        if read.failed and self._tells_leaders:
            listener = self.call.connection.listener_name
            answers = yield from self.handler.leaders.in_fetch(answers, listener)
        if self.call.version >= FIRST_WITH_TOPIC_IDS:
            answers = yield from with_ids(self.fetch.request, answers)
        if self.asked_for is not None:
            answers = yield from self._permitted(self.asked_for, answers)
        response = self.fetch.response(answers)
        if self.call.version >= FIRST_WITH_NODES and read.failed:
            leaders = (answer.current_leader for answer in response.partitions)
            nodes = self.handler.leaders.nodes(leaders, self.call.connection.listener_name)
            response = response._replace(nodes=nodes)
        self.call.respond(response)
