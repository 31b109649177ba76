"""The cluster as a client sees it: brokers, topics, leaders, and connections to them.

Rule: a connection has one user at a time (taken, then given back); a retriable error is retried
until the deadline, any other is raised at once. Not for several threads at once: give each thread a
Cluster of its own. Source: R-CLI1; the Metadata and ListOffsets APIs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from storage_engine.client.broker_discovery import BrokerSource, GivenBrokers
from storage_engine.client.closing import Closing
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.metadata import ClusterMetadata, Leader, TopicMetadata, view_of
from storage_engine.client.pool import ConnectionPool
from storage_engine.client.retry import Retry, pause_ms
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.spec import AnyApi

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

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


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
    ) -> None:
        """`deadline_ms` bounds every operation with its retries, `request_timeout_ms` a single
        request. `source`: finds brokers; `bootstrap_servers` then only says what it is."""
        self.bootstrap_servers = bootstrap_servers
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.deadline_ms = deadline_ms
        self.unknown_topic_wait_ms = min(unknown_topic_wait_ms, deadline_ms)
        self._bootstrap_timeout_ms = min(bootstrap_timeout_ms, deadline_ms)
        self._pool = ConnectionPool(source or GivenBrokers(bootstrap_servers), client_id)
        self._view = ClusterMetadata()
        # When each topic of the view was learnt, in monotonic ms; all topics: under None.
        self._learnt_at_ms: dict[str | None, int] = {}
        self.coordinators: dict[tuple[int, str], int] = {}
        """Broker by kind and name; `coordinator_lookup` alone changes it."""

    # Metadata.

    def metadata(
        self, topics: Iterable[str] | None = None, *, max_age_ms: int = 0
    ) -> ClusterMetadata:
        """Brokers, and the topics named (None: all; empty: none). What is not older than
        `max_age_ms` is not asked for again. Topics that do not exist are in `errors`."""
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
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        response = self.ask_any(METADATA, request, deadline)
        fresh = view_of(response)
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
        """KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist, after a while in which it
        may appear."""
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
        """The error for a partition that nobody leads."""
        return KafkaError(
            f"{tp} has no leader: none of its in-sync replicas is alive; start the brokers that "
            "hold them",
            ErrorCode.LEADER_NOT_AVAILABLE,
        )

    def known_leader(self, tp: TopicPartition) -> Leader | None:
        """The leader according to the last refresh; None when there was no leader, or no such
        partition."""
        topic = self._view.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or partition.leader not in self._view.brokers:
            return None
        return Leader(partition.leader, partition.leader_epoch)

    def knows(self, topic: str) -> bool:
        """Whether the topic was there at the last refresh."""
        return topic in self._view.topics

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition was there at the last refresh."""
        topic = self._view.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def _await(self, topic: str, there: Callable[[], bool], wait_ms: int) -> None:
        """Refresh until `there`, or the time is over, or it will never be."""
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
        """The error that says why `tp` can't be had."""
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
        spec: AnyApi,
        message: Any,
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Sends one request to a broker and returns its answer. It does not retry; it raises
        KafkaError(NETWORK_EXCEPTION) or DeadlineExceededError when there is no answer."""
        deadline = Deadline.after(timeout_ms or self.request_timeout_ms)
        return self._exchange(self.take(broker_id, deadline), spec, message, deadline, version)

    def ask_any(
        self,
        spec: AnyApi,
        message: Any,
        deadline: Deadline | None = None,
        *,
        version: int | None = None,
    ) -> Any:
        """A request that any broker answers; lost connections are retried."""
        deadline = deadline or Deadline.after(self.deadline_ms)
        retry = Retry(f"{spec.name} from {self.bootstrap_servers}", deadline)
        while True:
            connection = self._take_any(deadline)
            attempt = deadline.no_later_than(self.request_timeout_ms)
            try:
                return self._exchange(connection, spec, message, attempt, version)
            except DeadlineExceededError as error:
                retry.pause(error)
            except KafkaError as error:
                retry.pause(error)

    def _exchange(
        self,
        connection: BrokerConnection,
        spec: AnyApi,
        message: Any,
        deadline: Deadline,
        version: int | None,
    ) -> Any:
        try:
            answer = connection.exchange(spec, message, deadline, version=version)
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        return answer

    def take(self, broker_id: int, deadline: Deadline) -> BrokerConnection:
        """A connection to that broker, for one user; `give_back` it, or close it after an error."""
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
        """The first offset at or after each time (EARLIEST, LATEST: the ends of the log); -1 where
        there is none."""
        deadline = Deadline.after(self.deadline_ms)
        retry = Retry("ListOffsets", deadline)
        found: dict[TopicPartition, int] = {}
        while True:
            left = {tp: at for tp, at in timestamps_ms.items() if tp not in found}
            if not left:
                return found
            error: HeadraceError | None = None
            for broker_id, asked in self._by_leader(left).items():
                try:
                    self._ask_offsets(broker_id, asked, ISOLATION_LEVELS[isolation], found)
                except (DeadlineExceededError, KafkaError) as failure:
                    error = failure
            if error is not None:
                retry.pause(error)
                self.refresh({tp.topic for tp in left})

    def _by_leader(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[int, list[ListOffsetsPartition]]:
        by_leader: dict[int, list[ListOffsetsPartition]] = {}
        missing = {tp.topic for tp in timestamps_ms if self.known_leader(tp) is None}
        if missing:
            self.refresh(missing)
        for tp, timestamp in timestamps_ms.items():
            leader = self.leader(tp)
            asked = by_leader.setdefault(leader.broker_id, [])
            asked.append(ListOffsetsPartition(tp.topic, tp.partition, timestamp, leader.epoch))
        return by_leader

    def _ask_offsets(
        self,
        broker_id: int,
        asked: Sequence[ListOffsetsPartition],
        isolation_level: int,
        found: dict[TopicPartition, int],
    ) -> None:
        """Adds to `found` what has an answer; raises the first error among the rest."""
        request = ListOffsetsRequest(asked, isolation_level=isolation_level)
        failure: KafkaError | None = None
        for answer in self.request(broker_id, LIST_OFFSETS, request).partitions:
            tp = TopicPartition(answer.topic, answer.partition)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                found[tp] = answer.offset
            elif failure is None:
                failure = KafkaError(f"offsets of {tp}: {code.meaning}", code)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close all connections. The cluster can be used again."""
        self._pool.close()
