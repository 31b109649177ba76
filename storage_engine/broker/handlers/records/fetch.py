"""Fetch: consumers and followers read; both may wait for data.

Bytes that are not in the page cache are first read from the disk, by `cold_reads`; typed batches
are first converted for clients that don't know them, by `json_answers`.

Below this handler every request names all its partitions, each once. `fetch_sessions` adds the
partitions that a request in a session leaves out, and removes unchanged ones from the answer;
`fetched_topics` does the same with ids of topics. A fetch of many partitions is read in several
turns of the event loop: each answer is true at the time of its own read. Source: R-REP2, R-NET2,
KIP-227, KIP-516.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.cold_reads import FILES_PER_LOAD, is_at_hand, is_cold_slice
from storage_engine.broker.requests.current_leaders import CurrentLeaders
from storage_engine.broker.requests.delayed_fetch import FEW_PARTITIONS, is_enough, must_answer
from storage_engine.broker.requests.fetch_reads import FetchRead, PartitionReader
from storage_engine.broker.requests.fetch_sessions import FetchSessions, SessionFetch
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.fetched_topics import UNKNOWN, with_ids, with_names
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.broker.requests.json_answers import JsonAnswers
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.requests.typed_reads import UnconvertedSlice
from storage_engine.core.errors import ErrorCode
from storage_engine.core.replication.partition import SessionClock
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
"""(call, replica id, topics) -> those of the topics that the client may not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchHandler:
    """Answers Fetch."""

    sessions: FetchSessions
    reader: PartitionReader
    json_answers: JsonAnswers
    waits: FetchWaits
    metadata: MetadataCache
    leaders: CurrentLeaders
    unreadable: Unreadable | None = None
    """Those of the topics that a consumer may not read; None where everybody may read all."""

    def handle(self, call: ApiCall[FetchResponse], request: FetchRequest) -> Steps | None:
        if request.replica_id >= 0 and ends_long_poll(request):
            self.waits.of_followers.end(request.replica_id)
            call.respond(FetchResponse([]))
            return None
        if len(request.partitions) > FEW_PARTITIONS:
            return self._begin_many(call, request)
        if len(request.partitions) > 1:
            named = {(item.topic, item.partition): item for item in request.partitions}
            request = _of_each_once(request, named)
        return self._begin(call, request)

    def _begin_many(self, call: ApiCall[FetchResponse], request: FetchRequest) -> Steps:
        named = {}
        for some in _few_each(request.partitions):
            named.update({(item.topic, item.partition): item for item in some})
            yield None
        steps = self._begin(call, _of_each_once(request, named))
        if steps is not None:
            yield from steps

    def _begin(self, call: ApiCall[FetchResponse], request: FetchRequest) -> Steps | None:
        fetch = self.sessions.begin(request, call.owner)
        if isinstance(fetch, FetchResponse):
            call.respond(fetch)
            return None
        answering = _Answering(self, call, fetch, fetch.request)
        if len(fetch.request.partitions) > FEW_PARTITIONS:
            return answering.read_many()
        answering.read_few()
        return None


def ends_long_poll(request: FetchRequest) -> bool:
    """Whether it fetches nothing and has no session: see FollowerWaits."""
    return request.session_epoch == NO_SESSION_EPOCH and not request.partitions


def _of_each_once(
    request: FetchRequest, named: dict[tuple[str, int], FetchPartition]
) -> FetchRequest:
    """When a partition is named twice, the last entry counts, as in Kafka."""
    if len(named) == len(request.partitions):
        return request
    return request._replace(partitions=list(named.values()))


def _few_each(partitions: Sequence[FetchPartition]) -> Iterator[Sequence[FetchPartition]]:
    for start in range(0, len(partitions), FEW_PARTITIONS):
        yield partitions[start : start + FEW_PARTITIONS]


@dataclass(slots=True)
class _Answering:
    """A fetch that is not answered yet."""

    handler: FetchHandler
    call: ApiCall[FetchResponse]
    fetch: SessionFetch
    request: FetchRequest
    """Names all partitions that are looked at, by the names of their topics."""
    asked_for: list[str | None] | None = None
    """By place the name of the topic, whose right is asked for again at the answer, or None where
    it was missing at the start; None as a whole where everybody may read all."""

    def read_few(self) -> None:
        """The first look at all partitions at once."""
        named = self._by_names(self.fetch.request)
        if named is None:
            return
        named = self._readable(named)
        self.request = named
        reader, session = self.handler.reader, self.fetch.session
        if not isinstance(session, FollowerSession):
            reader.note_progress(named)
        elif reader.note_progress(named, session.clock) and self._may_wait(session):
            self._wait_in_session(session)
            return
        self.wait_or_answer(reader.read(named))

    @property
    def _session_clock(self) -> SessionClock | None:
        session = self.fetch.session
        return session.clock if isinstance(session, FollowerSession) else None

    def read_many(self) -> Steps:
        """The first look at many partitions."""
        asked = self.fetch.request
        partitions: list[FetchPartition] = []
        for some in _few_each(asked.partitions):
            named = self._by_names(asked._replace(partitions=some))
            if named is None:
                return
            named = self._readable(named)
            self.handler.reader.note_progress(named, self._session_clock)
            partitions += named.partitions
            yield None
        self.request = asked._replace(partitions=partitions)
        read = FetchRead(asked.max_bytes)
        yield from self._read(read)
        self.wait_or_answer(read)

    def _by_names(self, asked: FetchRequest) -> FetchRequest | None:
        """The request with the topics' names; None when it was refused instead."""
        if self.call.version < FIRST_WITH_TOPIC_IDS:
            return asked
        try:
            return with_names(self.handler.metadata, asked)
        except ValueError:
            self.call.respond(FetchResponse((), int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)))
            return None

    def _readable(self, named: FetchRequest) -> FetchRequest:
        """The request with an unknown topic in place of each that the consumer may not read: that
        is answered at once, whatever there is."""
        unreadable = self.handler.unreadable
        if unreadable is None or named.replica_id >= 0:
            return named
        topics = [item.topic for item in named.partitions]
        wanted = {topic for topic in topics if topic != UNKNOWN}
        refused = unreadable(self.call, named.replica_id, wanted)
        if self.asked_for is None:
            self.asked_for = []
        self.asked_for += [None if topic in refused else topic for topic in topics]
        if not refused:
            return named
        partitions = [
            item._replace(topic=UNKNOWN) if item.topic in refused else item
            for item in named.partitions
        ]
        return named._replace(partitions=partitions)

    def _permitted(
        self, asked_for: Sequence[str | None], answers: Sequence[FetchPartitionResponse]
    ) -> Generator[None, None, list[FetchPartitionResponse]]:
        """The answers without what may not, or no longer, be read."""
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

    def wait_or_answer(self, read: FetchRead) -> None:
        session = self.fetch.session
        if isinstance(session, FollowerSession) and session.epoch == self.fetch.epoch:
            if is_enough(self.request, read):
                self._answer(read)
            else:
                self._wait_in_session(session)
        elif must_answer(self.request, read) or not self.handler.waits.wait(
            self.request, read, finish=self._finish, gone=self._gone
        ):
            self._answer(read)

    def _may_wait(self, session: FollowerSession) -> bool:
        """Whether a fetch of this session waits when there is nothing for it."""
        request = self.request
        return (
            session.epoch == self.fetch.epoch
            and request.max_wait_ms > 0
            and request.min_bytes > 0
            and self.call.version < FIRST_WITH_TOPIC_IDS
        )

    def _wait_in_session(self, session: FollowerSession) -> None:
        self.handler.waits.wait_in_session(
            session, self.fetch.request, finish=self._finish_in_session, gone=self._gone
        )

    def _finish_in_session(self, request: FetchRequest, read: FetchRead | None) -> None:
        """The wait is over, and these partitions are due."""
        named = self._by_names(request)
        if named is not None:
            self.request, self.fetch.request = named, request
            self._finish(read)

    def _finish(self, read: FetchRead | None) -> None:
        """The wait is over. Nobody would answer later: what is unexpected ends the connection."""
        try:
            self._read_what_waited(read)
        except Exception as error:  # noqa: BLE001 - logged with its trace where the connection is closed
            self.call.failed(error)

    def _read_what_waited(self, read: FetchRead | None) -> None:
        if read is not None:
            self._answer(read)
        elif len(self.request.partitions) > FEW_PARTITIONS:
            self.call.run(self._read_and_answer())
        else:
            self._answer(self.handler.reader.read(self.request))

    def _read_and_answer(self) -> Steps:
        read = FetchRead(self.request.max_bytes)
        yield from self._read(read)
        self._answer(read)

    def _read(self, read: FetchRead) -> Steps:
        request = self.request
        for some in _few_each(request.partitions):
            self.handler.reader.read_more(request, some, read)
            yield None

    def _answer(self, read: FetchRead) -> None:
        if len(self.request.partitions) > FEW_PARTITIONS:
            self.call.run(self._answer_many(read))
        elif is_at_hand(read):
            self._send(read)
        else:
            self._answer_later(self.request, read, self._send)

    def _answer_many(self, read: FetchRead) -> Steps:
        """Answer a fetch of many partitions. Where bytes must come from a disk, or be converted,
        only the first few partitions are read again; the others are left to the client's next
        fetch."""
        request = self.request
        missed = {partition.topic_partition for partition, _, _ in read.cold}
        cold = []
        for place, answer in enumerate(read.partitions):
            if (
                isinstance(answer.records, UnconvertedSlice)
                or is_cold_slice(answer.records)
                or (answer.topic, answer.partition) in missed
            ):
                cold.append(place)
            yield None
        if not cold:
            self._send(read)
            return
        room = read.room
        for place in cold:
            answer = read.partitions[place]
            room += len(answer.records or b"")
            read.partitions[place] = answer._replace(records=None)
        first = cold[:FILES_PER_LOAD]
        few = request._replace(
            partitions=[request.partitions[place] for place in first], max_bytes=room
        )

        def send(result: FetchRead) -> None:
            for place, answer in zip(first, result.partitions, strict=True):
                read.partitions[place] = answer
            self._send(read)

        self._answer_later(few, self.handler.reader.read(few), send)

    def _answer_later(
        self, request: FetchRequest, read: FetchRead, send: Callable[[FetchRead], None]
    ) -> None:
        """As soon as the bytes are at hand."""
        self.handler.json_answers.answer(request, read, self.call.share, send, self._gone)

    def _gone(self) -> bool:
        return self.call.exchange.closed

    def _send(self, read: FetchRead) -> None:
        self.handler.reader.note_sent(self.request, read.partitions)
        if not read.failed and self.asked_for is None and self.call.version < FIRST_WITH_TOPIC_IDS:
            self._respond(read.partitions, read)
            return
        steps = self._sent(read)
        if len(read.partitions) > FEW_PARTITIONS:
            self.call.run(steps)
        else:
            for _ in steps:
                pass

    @property
    def _tells_leaders(self) -> bool:
        """A follower hears of leaders from the controller."""
        is_consumer = self.request.replica_id == CONSUMER_REPLICA_ID
        return is_consumer and self.call.version >= FIRST_WITH_LEADERS

    def _sent(self, read: FetchRead) -> Steps:
        answers: Sequence[FetchPartitionResponse] = read.partitions
        if read.failed and self._tells_leaders:
            listener = self.call.connection.listener_name
            answers = yield from self.handler.leaders.in_fetch(answers, listener)
        if self.call.version >= FIRST_WITH_TOPIC_IDS:
            answers = yield from with_ids(self.fetch.request, answers)
        if self.asked_for is not None:
            answers = yield from self._permitted(self.asked_for, answers)
        self._respond(answers, read)

    def _respond(self, answers: Sequence[FetchPartitionResponse], read: FetchRead) -> None:
        response = self.fetch.response(answers)
        if self.call.version >= FIRST_WITH_NODES and read.failed:
            leaders = (answer.current_leader for answer in response.partitions)
            nodes = self.handler.leaders.nodes(leaders, self.call.connection.listener_name)
            response = response._replace(nodes=nodes)
        self.call.respond(response)
