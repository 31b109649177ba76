"""The cluster as a client sees it: brokers, topics, leaders, and connections to them.

A connection has one user at a time, who takes it and gives it back. A retriable error is retried
until the deadline, any other is raised at once. A Cluster is not thread-safe: give each thread one
of its own. Source: R-CLI1; the Metadata and ListOffsets APIs.
"""

import contextlib
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.client.broker_discovery import BrokerSource, GivenBrokers
from storage_engine.client.closing import Closing
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.metadata import (
    ClusterMetadata,
    Leader,
    ToldLeaders,
    TopicMetadata,
    view_of,
)
from storage_engine.client.pool import ConnectionPool
from storage_engine.client.process_metrics import figures_for
from storage_engine.client.retry import Retry, pause_ms
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest, MetadataResponse
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Req, Resp

if TYPE_CHECKING:
    from storage_engine.client.security.client_security import ClientSecurity

EARLIEST = EARLIEST_TIMESTAMP
LATEST = LATEST_TIMESTAMP

BOOTSTRAP_TIMEOUT_MS = 10_000
"""How long a client tries the bootstrap servers before it fails."""

DEADLINE_MS = 60_000
"""The time for an operation with all its retries. It is longer than a failover, which takes the
session timeout of 6 s and an election."""

UNKNOWN_TOPIC_WAIT_MS = 3_000
"""How long brokers may say that a topic is unknown before that is an error: they learn of a new
topic one after the other."""

LOOKUP_MS = 1_000
"""The time for one request for leaders, where it is repeated."""

SILENT_MS = 1_000
"""A leader that has not answered for so long may hang, and have been replaced."""

SILENT_CHECK_MS = 500
"""The interval at which a client then asks other brokers for the leader."""

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


def no_error(_answer: object) -> None:
    """Return None, for an answer that has no top-level error."""


class LogBounds(NamedTuple):
    """The first offset of each partition, and the offset behind its last."""

    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]


class Cluster(Closing):
    """The way to a cluster's brokers. Opens nothing before the first request."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "headrace",
        request_timeout_ms: int = 30_000,
        deadline_ms: int = DEADLINE_MS,
        bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS,
        unknown_topic_wait_ms: int = UNKNOWN_TOPIC_WAIT_MS,
        source: BrokerSource | None = None,
        security: "ClientSecurity | None" = None,
    ) -> None:
        """`deadline_ms` bounds every operation with its retries, `request_timeout_ms` a single
        request. `source`: finds brokers; `bootstrap_servers` is then only its name in errors.
        `security`: how connections are encrypted and log in, None: neither; ConfigError for a file
        of it that can't be used."""
        self.bootstrap_servers = bootstrap_servers
        self.client_id = client_id
        self.figures = figures_for(self, client_id)
        """The figures of all records, batches and fetches through this object."""
        self.request_timeout_ms = request_timeout_ms
        self.deadline_ms = deadline_ms
        self.unknown_topic_wait_ms = min(unknown_topic_wait_ms, deadline_ms)
        self._bootstrap_timeout_ms = min(bootstrap_timeout_ms, deadline_ms)
        self._pool = ConnectionPool(source or GivenBrokers(bootstrap_servers), client_id, security)
        self._view = ClusterMetadata()
        self._told_leaders = ToldLeaders()
        # When each topic of the view was learnt, in monotonic ms; all topics: under None.
        self._learnt_at_ms: dict[str | None, int] = {}
        self.coordinators: dict[tuple[int, str], int] = {}
        """The broker id by kind and name of a coordinator; `asking` alone changes it."""

    # Metadata.

    def metadata(
        self, topics: Iterable[str] | None = None, *, max_age_ms: int = 0
    ) -> ClusterMetadata:
        """Return brokers and the named topics (None: all; empty: none). Metadata that is not older
        than `max_age_ms` is not requested again. Topics that do not exist are in `errors`."""
        names = None if topics is None else list(dict.fromkeys(topics))
        if names == [] or not self._known(names, max_age_ms):
            self.refresh(names)
        return self._only(names)

    def _known(self, names: Sequence[str] | None, max_age_ms: int) -> bool:
        since_ms = monotonic_ms() - max_age_ms
        never = since_ms - 1
        all_at_ms = self._learnt_at_ms.get(None, never)
        if names is None or all_at_ms > since_ms:
            return all_at_ms > since_ms
        return all(
            name in self._view.topics and self._learnt_at_ms.get(name, never) > since_ms
            for name in names
        )

    def _only(self, names: Collection[str] | None) -> ClusterMetadata:
        view = self._view
        if names is None:
            return view
        unknown = {
            name: view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
            if name not in view.topics
        }
        return ClusterMetadata(
            brokers=view.brokers,
            topics={name: view.topics[name] for name in names if name in view.topics},
            errors=unknown,
            controller_id=view.controller_id,
            cluster_id=view.cluster_id,
        )

    def refresh(
        self, topics: Iterable[str] | None = None, deadline: Deadline | None = None
    ) -> None:
        """Refreshes brokers and the named topics (None: all topics) from any broker."""
        names = None if topics is None else list(topics)
        self._learn(names, self.ask_any(METADATA, _metadata_request(names), deadline))

    def _learn(self, names: Sequence[str] | None, response: MetadataResponse) -> None:
        """Merge an answer about the topics `names` into the view."""
        fresh = self._told_leaders.kept(self._view, view_of(response))
        now_ms = monotonic_ms()
        if names is None:
            self._learnt_at_ms = dict.fromkeys([*fresh.topics, None], now_ms)
            self._view = fresh
            return
        self._learnt_at_ms.update(dict.fromkeys(names, now_ms))
        gone = set(names) - set(fresh.topics)
        kept = {name: topic for name, topic in self._view.topics.items() if name not in gone}
        errors = {name: code for name, code in self._view.errors.items() if name not in names}
        self._view = ClusterMetadata(
            brokers=fresh.brokers,
            topics={**kept, **fresh.topics},
            errors={**errors, **fresh.errors},
            controller_id=fresh.controller_id,
            cluster_id=fresh.cluster_id,
        )

    @property
    def view(self) -> ClusterMetadata:
        """The metadata of the last refresh."""
        return self._view

    def topic(self, name: str) -> TopicMetadata:
        """Return a topic. KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist, also after
        a wait of `unknown_topic_wait_ms`."""
        self._await(name, lambda: name in self._view.topics, self.unknown_topic_wait_ms)
        topic = self._view.topics.get(name)
        if topic is None:
            raise self.unknown(TopicPartition(name, 0))
        return topic

    def leader(self, tp: TopicPartition) -> Leader:
        """Waits up to the deadline for a leader; KafkaError when the topic or the partition does
        not exist."""
        if (leader := self.known_leader(tp)) is not None:
            return leader
        if tp.partition not in self.topic(tp.topic).partitions:
            self._await(tp.topic, lambda: self.has(tp), self.unknown_topic_wait_ms)
        if not self.has(tp):
            raise self.unknown(tp)
        self._await(tp.topic, lambda: self.known_leader(tp) is not None, self.deadline_ms)
        leader = self.known_leader(tp)
        if leader is None:
            error = self.without_leader(tp)
            raise DeadlineExceededError(f"{error} (waited {self.deadline_ms} ms)")
        return leader

    def without_leader(self, tp: TopicPartition) -> KafkaError:
        """Return the error for a partition without a leader."""
        return KafkaError(
            f"{tp} has no leader: none of its in-sync replicas is alive; start the brokers that "
            "hold them",
            ErrorCode.LEADER_NOT_AVAILABLE,
        )

    def known_leader(self, tp: TopicPartition) -> Leader | None:
        """Return the leader by the last refresh; None when there was no leader, or no such
        partition."""
        topic = self._view.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or partition.leader not in self._view.brokers:
            return None
        return Leader(partition.leader, partition.leader_epoch)

    def told_leader(
        self, tp: TopicPartition, leader: CurrentLeader | None, nodes: Iterable[LeaderNode]
    ) -> bool:
        """Use the leader, and its address, that a broker may name when it refuses to serve a
        partition (KIP-951). Return True when the leader was not known, so that the client need not
        ask or wait."""
        changed = self._told_leaders.told(self._view, tp, leader, nodes)
        if changed is not None:
            self._view = changed
        return changed is not None

    def has_moved(
        self, partitions: Collection[TopicPartition], broker_id: int, connection: BrokerConnection
    ) -> bool:
        """Whether all partitions have another leader by now, by fresh metadata of other brokers.
        For a caller whom their leader, which may hang, has not answered for SILENT_MS."""
        self.avoid(connection)
        with contextlib.suppress(KafkaError, DeadlineExceededError):
            self.refresh({tp.topic for tp in partitions}, Deadline.after(LOOKUP_MS))
        leaders = [self.known_leader(tp) for tp in partitions]
        return all(leader is not None and leader.broker_id != broker_id for leader in leaders)

    def knows(self, topic: str) -> bool:
        """Whether the topic was there at the last refresh."""
        return topic in self._view.topics

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition was there at the last refresh."""
        topic = self._view.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def _await(self, topic: str, there: Callable[[], bool], wait_ms: int) -> None:
        """Refresh until `there` is true, the time is over, or the topic has a final error."""
        deadline = Deadline.after(wait_ms)
        attempt = 0
        while not there():
            self.refresh([topic])
            code = self._view.errors.get(topic)
            if there() or (code is not None and not code.retriable) or deadline.passed:
                return
            sleep_ms(min(pause_ms(attempt), deadline.left_ms))
            attempt += 1

    def unknown(self, tp: TopicPartition) -> KafkaError:
        """Return the error for a topic or partition that is not available."""
        code = self._view.errors.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic = self._view.topics.get(tp.topic)
        if topic is not None:
            return KafkaError(
                f"topic '{tp.topic}' has {len(topic.partitions)} partitions, "
                f"so there is no partition {tp.partition}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return KafkaError(
                f"topic '{tp.topic}' does not exist on {self.bootstrap_servers}; create it, "
                "or correct its name",
                code,
            )
        return KafkaError(f"topic '{tp.topic}': {code.meaning}", code)

    # Requests.

    def request(
        self,
        broker_id: int,
        spec: ApiSpec[Req, Resp],
        message: Req,
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Resp:
        """Sends one request to a broker and returns its answer. It does not retry; it raises
        KafkaError(NETWORK_EXCEPTION) or DeadlineExceededError when there is no answer."""
        deadline = Deadline.after(timeout_ms or self.request_timeout_ms)
        return self._exchange(self.take(broker_id, deadline), spec, message, deadline, version)

    def request_all(
        self,
        requests: Sequence[tuple[int, ApiSpec[Req, Resp], Req]],
        *,
        timeout_ms: int | None = None,
    ) -> list[Resp | KafkaError | DeadlineExceededError]:
        """Sends each (broker, API, message) before it waits for the first answer, so that all take
        as long as the slowest. It does not retry. Returns in their order the answers, and the
        KafkaError or DeadlineExceededError of a request without one."""
        deadline = Deadline.after(timeout_ms or self.request_timeout_ms)
        connections: dict[int, BrokerConnection] = {}
        answers: dict[int, Resp | KafkaError | DeadlineExceededError] = {}
        try:
            for place, (broker_id, spec, message) in enumerate(requests):
                try:
                    if broker_id not in connections:
                        connections[broker_id] = self.take(broker_id, deadline)
                    connections[broker_id].send(spec, message, deadline)
                except (KafkaError, DeadlineExceededError) as error:
                    answers[place] = error
            for place, (broker_id, _, _) in enumerate(requests):
                if place in answers:
                    continue
                connection = connections[broker_id]
                try:
                    answers[place] = connection.receive(deadline)
                except (KafkaError, DeadlineExceededError) as error:
                    answers[place] = error
                    # The next answer on it may be the one to this request.
                    connection.close()
        finally:
            for connection in connections.values():
                self.give_back(connection)
        return [answers[place] for place in range(len(requests))]

    def ask_any(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline | None = None,
        *,
        version: int | None = None,
        error_of: Callable[[Resp], KafkaError | None] = no_error,
    ) -> Resp:
        """Send a request that any broker answers. After a lost connection or a retriable error that
        `error_of` finds in the answer, it is sent again."""
        deadline = deadline or Deadline.after(self.deadline_ms)
        retry = Retry(f"{spec.name} from {self.bootstrap_servers}", deadline)
        while True:
            connection = self._take_any(deadline)
            attempt = deadline.no_later_than(self.request_timeout_ms)
            failure: HeadraceError | None
            try:
                answer = self._exchange(connection, spec, message, attempt, version)
                failure = error_of(answer)
                if failure is None:
                    return answer
            except (DeadlineExceededError, KafkaError) as error:
                failure = error
            retry.pause(failure)

    def _exchange(
        self,
        connection: BrokerConnection,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline,
        version: int | None,
    ) -> Resp:
        try:
            answer = connection.exchange(spec, message, deadline, version=version)
        except BaseException:
            connection.close()
            self.avoid(connection)
            raise
        self.give_back(connection)
        return answer

    def take(self, broker_id: int, deadline: Deadline) -> BrokerConnection:
        """Return a connection to a broker, for one user; `give_back` it, or close it on error."""
        broker = self._view.brokers.get(broker_id)
        if broker is None:
            self.refresh([], deadline)
            broker = self._view.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(
                f"broker {broker_id} is not among the live brokers of {self.bootstrap_servers}",
                ErrorCode.LEADER_NOT_AVAILABLE,
            )
        return self._pool.take_at((broker.host, broker.port), deadline)

    def give_back(self, connection: BrokerConnection) -> None:
        """Keeps the connection for its next user when it can be used again."""
        self._pool.give_back(connection)

    def avoid(self, connection: BrokerConnection) -> None:
        """Ask other brokers first for a while: this one has not answered."""
        self._pool.avoid(connection.address)

    def _take_any(self, deadline: Deadline) -> BrokerConnection:
        known = [(broker.host, broker.port) for broker in self._view.brokers.values()]
        limit = deadline if known else deadline.no_later_than(self._bootstrap_timeout_ms)
        return self._pool.take_any(known, limit)

    # Offsets.

    def list_offsets(
        self,
        timestamps_ms: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """Return the first offset not before each time (EARLIEST, LATEST: the log's ends); -1 where
        there is none."""
        deadline = Deadline.after(self.deadline_ms)
        retry = Retry("ListOffsets", deadline)
        found: dict[TopicPartition, int] = {}
        while True:
            left = {tp: at for tp, at in timestamps_ms.items() if tp not in found}
            if not left:
                return found
            error: HeadraceError | None = None
            for answer in self.request_all(self._offset_requests(left, isolation)):
                error = _take_offsets(answer, found) or error
            if error is not None:
                retry.pause(error)
                self.refresh({tp.topic for tp in left})

    def log_bounds(
        self, partitions: Collection[TopicPartition], *, isolation: str = "read_uncommitted"
    ) -> LogBounds:
        """Return the bounds of logs and refresh the metadata of their topics, in one round trip. It
        does not retry: partitions without an answer are left out, and old metadata stays."""
        known = [tp for tp in partitions if self.known_leader(tp) is not None]
        if not known:
            return LogBounds({}, {})
        topics = list(dict.fromkeys(tp.topic for tp in known))
        ends = self._offset_requests(dict.fromkeys(known, LATEST), isolation)
        starts = self._offset_requests(dict.fromkeys(known, EARLIEST), isolation)
        any_broker = random.choice(ends)[0]
        asked: list[tuple[int, AnyApi, MetadataRequest | ListOffsetsRequest]]
        asked = [(any_broker, METADATA, _metadata_request(topics)), *ends, *starts]
        metadata, *answers = self.request_all(asked)
        if not isinstance(metadata, HeadraceError):
            self._learn(topics, metadata)
        bounds = LogBounds({}, {})
        for place, answer in enumerate(answers):
            _take_offsets(answer, bounds.latest if place < len(ends) else bounds.earliest)
        return bounds

    def _offset_requests(
        self, timestamps_ms: Mapping[TopicPartition, int], isolation: str
    ) -> list[tuple[int, ApiSpec[ListOffsetsRequest, ListOffsetsResponse], ListOffsetsRequest]]:
        """One request for each leader."""
        by_leader: dict[int, list[ListOffsetsPartition]] = {}
        missing = {tp.topic for tp in timestamps_ms if self.known_leader(tp) is None}
        if missing:
            self.refresh(missing)
        for tp, timestamp in timestamps_ms.items():
            leader = self.leader(tp)
            asked = by_leader.setdefault(leader.broker_id, [])
            asked.append(ListOffsetsPartition(tp.topic, tp.partition, timestamp, leader.epoch))
        level = ISOLATION_LEVELS[isolation]
        return [
            (broker_id, LIST_OFFSETS, ListOffsetsRequest(asked, isolation_level=level))
            for broker_id, asked in by_leader.items()
        ]

    def close(self) -> None:
        """Close all connections. The cluster can be used again."""
        self._pool.close()


def _metadata_request(topics: list[str] | None) -> MetadataRequest:
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _take_offsets(
    answer: ListOffsetsResponse | HeadraceError, found: dict[TopicPartition, int]
) -> HeadraceError | None:
    """Add the offsets in an answer to `found`; return its first error, None without one."""
    if isinstance(answer, HeadraceError):
        return answer
    failure: KafkaError | None = None
    for row in answer.partitions:
        tp = TopicPartition(row.topic, row.partition)
        code = ErrorCode.of(row.error_code)
        if code is ErrorCode.NONE:
            found[tp] = row.offset
        elif failure is None:
            failure = KafkaError(f"offsets of {tp}: {code.meaning}", code)
    return failure
