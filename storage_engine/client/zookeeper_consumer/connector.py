"""Reads topics as a member of a group whose members share partitions through ZooKeeper.

    from storage_engine.client import ConsumerConnector

    config = {"zookeeper.connect": "127.0.0.1:2181", "group.id": "billing"}
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            print(message.partition, message.offset, message.value)

Each partition is read by one stream of the group at a time. A message is delivered again when its
consumer dies before the next commit, and never skipped. For groups that a broker coordinates, use
`Consumer`. Source: R-CLI3.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence

from storage_engine.client.broker_discovery import encrypted_access
from storage_engine.client.closing import Closing
from storage_engine.client.cluster import Cluster
from storage_engine.client.loop import ClientLoop, LoopEndedError
from storage_engine.client.security.security_rows import Given
from storage_engine.client.zookeeper_consumer.assignment import StreamCounts, TopicFilter
from storage_engine.client.zookeeper_consumer.brokers_view import AskedBrokers
from storage_engine.client.zookeeper_consumer.connector_config import ConnectorConfig
from storage_engine.client.zookeeper_consumer.dead_members import DeadMembers
from storage_engine.client.zookeeper_consumer.ledger import StreamLedger
from storage_engine.client.zookeeper_consumer.member import TakenPartition, ZooKeeperGroupMember
from storage_engine.client.zookeeper_consumer.message_stream import MessageStream
from storage_engine.client.zookeeper_consumer.watched_descriptors import WatchedDescriptors
from storage_engine.core.errors import ConfigError, DeadlineExceededError, HeadraceError
from storage_engine.core.ids import TopicPartition, topic_name_problem
from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.net.local_processes import LocalProcesses
from storage_engine.zookeeper.access import ANYBODY, Written, ZooKeeperAccess
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths, new_consumer_id
from storage_engine.zookeeper.foreign_sessions import ThreadedForeignSessions
from storage_engine.zookeeper.session import ZooKeeperSession
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

OnPartitions = Callable[[list[TopicPartition]], None]
"""Called with partitions that are assigned or revoked, in the thread of the group."""

_ALL = ""
"""Stands for all topics that pass the filter, in the place of a topic."""

_STOP_MS = 5_000
"""How long a shutdown waits for the release of all partitions; then the session ends."""


class ConsumerConnector(Closing):
    """Use it in a `with` block, or `shutdown` it: its partitions go to others at once then."""

    def __init__(
        self,
        config: Given,
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> None:
        """`config`: see `connector_config.SETTINGS`, values also as text; ConfigError for a wrong
        one. Opens nothing before streams are created.

        `on_assigned` is called with partitions before their first message. `on_revoked` is called
        with those that go, when no more of their messages are handed out, and before another can
        have them; it may `commit_offsets`. For those that are lost with the session it is called
        afterwards. Both should take less than the session's timeout, or the session ends.
        """
        self._config = ConnectorConfig.of(config)
        self.consumer_id = new_consumer_id()
        """The name of this consumer in the group's znodes."""
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._descriptors = WatchedDescriptors()
        self._loop = ClientLoop(
            "headrace-zookeeper-group", work=self._descriptors, on_end=self._ended
        )
        self._brokers: AskedBrokers | None = None
        self._session: ZooKeeperSession | None = None
        self._member: ZooKeeperGroupMember | None = None
        self._dead_members: DeadMembers | None = None
        self._streams: list[MessageStream] = []
        self._ledgers: dict[str, list[StreamLedger]] = {}
        """The ledgers by topic; under _ALL with a filter."""
        self._commits = self._config.enable_auto_commit
        self._commit_asked = False
        """Set by `on_revoked` while it runs."""
        self._closed = False

    # --- streams ---

    def create_message_streams(
        self, topic_counts: Mapping[str, int]
    ) -> dict[str, list[MessageStream]]:
        """Creates the given number of streams for each topic, each for a thread of its own. It can
        be called only once for a connector, because creating all streams at once spares the group
        rebalances."""
        for topic, count in topic_counts.items():
            if problem := topic_name_problem(topic):
                raise ConfigError(problem)
            _check_count(count)
        if not topic_counts:
            raise ConfigError("create_message_streams needs a topic; give {'topic': 1}")
        return self._create(dict(topic_counts), StreamCounts(dict(topic_counts)))

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, streams: int = 1
    ) -> list[MessageStream]:
        """Streams over all topics that pass, also those that will be made. Once for a connector."""
        _check_count(streams)
        return self._create({_ALL: streams}, StreamCounts({}, topic_filter, streams))[_ALL]

    def _create(
        self, counts: Mapping[str, int], wanted: StreamCounts
    ) -> dict[str, list[MessageStream]]:
        if self._session is not None or self._closed:
            raise HeadraceError(
                "the streams of this connector exist already; use another connector "
                "for more streams"
            )
        self._brokers = brokers = self._ask_brokers()
        self._session = session = self._open()
        streams = {}
        for topic, count in counts.items():
            self._ledgers[topic] = [StreamLedger(session) for _ in range(count)]
            streams[topic] = [
                MessageStream(self._config.streams, ledger) for ledger in self._ledgers[topic]
            ]
            self._streams += streams[topic]
        member = ZooKeeperGroupMember(
            session,
            self._loop,
            self,
            group=self._config.group_id,
            consumer=self.consumer_id,
            streams=wanted,
            protocol=self._config.streams.security.protocol.name,
            brokers=brokers,
        )
        self._member = member
        self._loop.start()
        if brokers is None:
            self._check_cluster(session)
        else:
            brokers.begin(self._loop, member.start)
        if self._config.sees_death:
            self._dead_members = self._watch_for_deaths(session)
            self._loop.call_soon(self._dead_members.start)
        self._loop.call_soon(member.start)
        if self._config.enable_auto_commit:
            self._loop.call_soon(self._commit_later)
        return streams

    def _ask_brokers(self) -> AskedBrokers | None:
        config, streams = self._config, self._config.streams
        if config.bootstrap_servers is None:
            return None
        cluster = Cluster(
            config.bootstrap_servers,
            client_id=streams.client_id,
            request_timeout_ms=streams.request_timeout_ms,
            deadline_ms=streams.default_api_timeout_ms,
            security=streams.security,
        )
        return AskedBrokers(cluster, config.metadata_max_age_ms)

    def _open(self) -> ZooKeeperSession:
        config = self._config
        paths = ConsumerGroupPaths(config.group_id)
        session = ZooKeeperSession(
            config.zookeeper_connect,
            config.session_timeout_ms,
            self._loop.call_soon,
            clock=self._loop,
            access=self._access(),
            written=Written(
                (paths.ids, paths.root, ConsumerGroupPaths.PARENT, "/"),
                "consumers make their nodes below it; its ACL must let them",
            ),
        )
        session.start(config.connection_timeout_ms)
        return session

    def _access(self) -> ZooKeeperAccess:
        tls = self._config.zookeeper_tls
        return ANYBODY if tls is None else encrypted_access(tls)

    def _watch_for_deaths(self, session: ZooKeeperSession) -> DeadMembers:
        config = self._config
        return DeadMembers(
            ConsumerGroupPaths(config.group_id),
            metadata_store=session,
            scheduler=self._loop,
            processes=LocalProcesses(self._descriptors),
            foreign_sessions=ThreadedForeignSessions(
                config.zookeeper_connect,
                config.session_timeout_ms,
                self._loop.call_soon,
                access=self._access(),
            ),
        )

    def _check_cluster(self, session: ZooKeeperSession) -> None:
        def look(answer: Callable[[ZkReply], None]) -> None:
            session.exists(BrokerIdZNode.PARENT, answer)

        try:
            reply = self._loop.ask(look, self._config.connection_timeout_ms)
        except TimeoutError:
            return
        if reply.status is ZkStatus.NO_NODE:
            self.shutdown()
            raise ConfigError(
                f"zookeeper.connect={self._config.zookeeper_connect}: no broker has ever "
                "registered there; check the servers and the path"
            )

    # --- offsets ---

    def commit_offsets(self) -> None:
        """Store the offsets of all messages that count as consumed: of the streams that this thread
        reads, every message handed out; of others, all but the last. CommitRefusedError when a
        partition is another's by now. In `on_revoked` it takes effect before the partitions go."""
        member = self._member
        if member is None or self._closed or self._loop.has_ended:
            raise HeadraceError("the connector has no streams, or is shut down")
        if self._loop.is_current:
            self._commit_asked = True
            member.commit(self._positions(), _ignore)
            return
        for ledger in self._all_ledgers():
            ledger.settle()

        def commit(answer: Callable[[HeadraceError | None], None]) -> None:
            member.commit(self._positions(), answer)

        timeout_ms = self._config.streams.default_api_timeout_ms
        try:
            error = self._loop.ask(commit, timeout_ms)
        except TimeoutError:
            raise DeadlineExceededError(
                f"ZooKeeper has not stored the offsets in {timeout_ms} ms"
            ) from None
        if error is not None:
            raise error

    def _positions(self) -> dict[TopicPartition, int]:
        return {
            tp: offset
            for ledger in self._all_ledgers()
            for tp, offset in ledger.positions().items()
        }

    def _commit_later(self) -> None:
        def commit() -> None:
            if self._member is not None and not self._closed:
                # What is refused is read again by its next owner.
                self._member.commit(self._positions(), _ignore)
                self._commit_later()

        self._loop.call_later(self._config.auto_commit_interval_ms, commit)

    # --- the end ---

    def shutdown(self) -> None:
        """Commit where that is automatic, and leave the group. Streams end; those that are read
        meanwhile once their thread asks them for more."""
        self._shutdown(commits=self._config.enable_auto_commit)

    def _shutdown(self, *, commits: bool) -> None:
        if self._loop.is_current:
            raise HeadraceError("a callback can't shut its connector down: do it in another thread")
        if self._closed:
            return
        self._closed = True
        ledgers = self._all_ledgers()
        if commits:
            for ledger in ledgers:
                ledger.settle()
        if self._member is not None and not self._loop.has_ended:
            self._commits = commits
            self._stop(self._member)
        self._loop.stop()
        self._loop.join(_STOP_MS)
        if self._brokers is not None:
            self._brokers.close()
        if self._session is not None:
            self._session.close()
        for ledger, stream in zip(ledgers, self._streams, strict=True):
            ledger.close()
            if ledger.is_callers:
                stream.close()

    def _stop(self, member: ZooKeeperGroupMember) -> None:
        def stop(answer: Callable[[None], None]) -> None:
            member.stop(functools.partial(answer, None))

        with contextlib.suppress(TimeoutError, LoopEndedError):
            self._loop.ask(stop, _STOP_MS)

    def close(self) -> None:
        """The same as `shutdown`."""
        self.shutdown()

    def _close_after_error(self) -> None:
        """Commit nothing: what was read since the last commit comes again."""
        self._shutdown(commits=False)

    # --- calls of the member, on the loop: `member.MemberListener` ---

    def set_brokers(self, addresses: str) -> None:
        for ledger in self._all_ledgers():
            ledger.set_brokers(addresses)

    def take(self, taken: Sequence[TakenPartition]) -> None:
        if self._on_assigned is not None:
            self._on_assigned(sorted(each.tp for each in taken))
        for each in taken:
            self._of_topic(each.tp.topic)[each.stream].give({each.tp: each.offset})

    def release(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        positions = self._revoke_from_streams(partitions)
        self._commit_asked = False
        if self._on_revoked is not None:
            self._on_revoked(sorted(partitions))
        return positions if self._commits or self._commit_asked else {}

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        self._revoke_from_streams(partitions)
        if self._on_revoked is not None:
            self._on_revoked(sorted(partitions))

    def fail(self, error: HeadraceError) -> None:
        for ledger in self._all_ledgers():
            ledger.close(error)

    def _revoke_from_streams(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        positions: dict[TopicPartition, int] = {}
        for topic in {tp.topic for tp in partitions}:
            of_topic = [tp for tp in partitions if tp.topic == topic]
            for ledger in self._of_topic(topic):
                positions.update(ledger.revoke(of_topic))
        return positions

    def _of_topic(self, topic: str) -> list[StreamLedger]:
        return self._ledgers[topic if topic in self._ledgers else _ALL]

    def _all_ledgers(self) -> list[StreamLedger]:
        return [ledger for ledgers in self._ledgers.values() for ledger in ledgers]

    def _ended(self, is_broken: bool) -> None:
        if self._dead_members is not None:
            self._dead_members.close()
        if is_broken:
            self.fail(
                HeadraceError(
                    "the thread of the group has ended, by an error of a callback or a bug: see "
                    "its traceback"
                )
            )


def _ignore(_error: HeadraceError | None) -> None:
    """Takes an error that nobody waits for."""


def _check_count(count: int) -> None:
    if count < 1:
        raise ConfigError(f"the number of streams is {count!r}; it must be 1 or more")
