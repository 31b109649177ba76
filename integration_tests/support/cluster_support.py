"""Clusters of real processes for tests, and waiting without sleeping blindly."""

import contextlib
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.support.client_files import connected_as_admin, settings_for
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, start_embedded

Value = TypeVar("Value")

SESSION_TIMEOUT_MS = 2000
"""Short, so that a killed broker is noticed soon; ZooKeeper's least is twice its tick."""

QUICK_FAILOVER = (
    ("zookeeper.session.timeout.ms", str(SESSION_TIMEOUT_MS)),
    ("zookeeper.connection.timeout.ms", "20000"),
)
"""A session ends early, but a broker that starts on a busy machine waits longer for ZooKeeper."""

COORDINATOR_PARTITIONS = 3
"""Of the topic of groups, and of that of transactions in the cluster that files share."""

FEW_GROUPS = (("offsets.topic.num.partitions", str(COORDINATOR_PARTITIONS)),)
"""Whatever consumer makes the topic of groups: 50 partitions would be most of a small cluster."""

SHARED_SETTINGS = (
    ("log.retention.check.interval.ms", "500"),
    ("log.cleaner.backoff.ms", "500"),
    ("transaction.state.log.num.partitions", str(COORDINATOR_PARTITIONS)),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "3000"),
)
"""Retention, compaction and groups that a test can wait for; oftener, and the many partitions of a
shared cluster would keep idle brokers at work."""

DEADLINE_S = 60.0

HEALED_S = 300.0
"""For replicas to come back after a fault, which may take minutes on a busy machine."""

RESTART_SEEN_S = 0.5
"""A controller has seen a restart by then, and begun to say what it means."""

TELL_S = 20.0
"""Whoever waits for long says for what, so often."""

CLIENT_TIMEOUT_MS = 5000
"""librdkafka waits a minute for a broker that hangs before it asks another."""

END_TOLD_MS = 20
"""The time after which a broker tells who reads to the end that it is there; librdkafka gives it
half a second."""


class HasBootstrapServers(Protocol):
    """A cluster, as clients see it."""

    @property
    def bootstrap_servers(self) -> str: ...


def wait_until(
    condition: Callable[[], Value], what: str, *, timeout_s: float = DEADLINE_S
) -> Value:
    """The first true value of `condition`; AssertionError with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def wait_while_lacking(
    lacking: Callable[[], Sequence[str]],
    *,
    timeout_s: float,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Until nothing is lacking. What still is, is told every TELL_S and by the AssertionError."""
    started = told = time.monotonic()
    while missing := lacking():
        now = time.monotonic()
        assert now - started < timeout_s, f"lacking for {timeout_s:g} s: {'; '.join(missing)}"
        if now - told >= TELL_S:
            told = now
            tell(f"waits since {now - started:.0f} s for {'; '.join(missing)}")
        time.sleep(0.05)


class _Shared:
    """The ZooKeeper of the clusters of a run: started for the first of them."""

    folder: Path | None = None
    server: EmbeddedZooKeeper | None = None


@contextlib.contextmanager
def sharing_zookeeper(folder: Path) -> Iterator[None]:
    """Clusters that start in the block have a path each in one ZooKeeper: a Java of its own for
    each takes as much of the processor as a broker."""
    _Shared.folder = folder
    try:
        yield
    finally:
        _Shared.folder = None
        if _Shared.server is not None:
            _Shared.server.stop()
            _Shared.server = None


@contextlib.contextmanager
def zookeeper_for(folder: Path) -> Iterator[str]:
    """Where a cluster that no `running_cluster` makes is kept: `zookeeper.connect`. `folder`: of a
    ZooKeeper of its own, where clusters share none."""
    shared = _path_in_zookeeper()
    if shared is not None:
        yield shared
        return
    server = start_embedded(folder, unsafe_no_fsync=True)
    try:
        yield server.connect
    finally:
        server.stop()


def _path_in_zookeeper() -> str | None:
    """Where a new cluster is kept; None for a ZooKeeper of its own."""
    if _Shared.folder is None:
        return None
    if _Shared.server is None:
        _Shared.server = start_embedded(_Shared.folder, unsafe_no_fsync=True)
    return f"{_Shared.server.connect}/{uuid.uuid4().hex}"


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    *,
    brokers: int = 3,
    settings: tuple[tuple[str, str], ...] = (),
    is_secure: bool = False,
    has_zookeeper: bool = False,
) -> Iterator[LocalCluster]:
    """A cluster on free ports that is gone after the block, whatever happens in it. `is_secure`:
    the tests' clients are its super user. `has_zookeeper`: of its own, as a secure one has, in its
    folder.

    Its brokers are killed: handing over one after the other takes seconds. A test that looks at
    what they leave calls `down` itself.
    """
    request = UpRequest(
        brokers=brokers,
        port=0,
        zookeeper=None if has_zookeeper or is_secure else _path_in_zookeeper(),
        settings=(*FEW_GROUPS, *QUICK_FAILOVER, *settings),
        is_secure=is_secure,
    )
    with (
        LocalCluster.running(directory, request) as cluster,
        connected_as_admin(cluster) if is_secure else contextlib.nullcontext(),
    ):
        try:
            yield cluster
        finally:
            for broker in cluster.state.brokers:
                cluster.kill_broker(broker.id)


_CONTROLLER_KNOWS = re.compile(r"controller (?:loaded|has) brokers=\[([\d, ]*)\]")


def is_known(broker_id: int, logs: Iterable[str]) -> bool:
    """Whether a controller knows that broker: topics have replicas there from then on. `logs`: what
    each broker of the cluster has written."""
    told = filter(None, map(_CONTROLLER_KNOWS.findall, logs))
    return any(str(broker_id) in known[-1].split(", ") for known in told)


def make_whole(cluster: LocalCluster) -> None:
    """Starts the brokers that tests have left dead."""
    for broker in cluster.state.brokers:
        if broker.pid is None:
            cluster.start_broker(broker.id)


class WholeCluster:
    """Hands a cluster from one file of tests to the next: all brokers run, all replicas are in
    sync. What can't get in sync is told in a warning, once, and not waited for again."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._client = admin(cluster)
        self._pids = self._running()
        self._given_up: set[str] = set()

    def _running(self) -> list[int | None]:
        return [broker.pid for broker in self._cluster.state.brokers]

    def restore(self) -> None:
        make_whole(self._cluster)
        if self._running() != self._pids:
            self._pids = self._running()
            # A controller that has just heard of another start has yet to say who is not in sync.
            time.sleep(RESTART_SEEN_S)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self._lacking(), "all are in sync")
        if lacking := self._lacking():
            self._given_up |= lacking
            warnings.warn(f"not in sync after a file of tests: {sorted(lacking)}", stacklevel=1)

    def _lacking(self) -> set[str]:
        """Those that replicas in sync, or brokers that know them, are lacking of."""
        from confluent_kafka import KafkaException

        try:
            known = self._client.list_topics(timeout=5)
        except KafkaException as error:
            return {f"the brokers: {error}"}
        alive = set(known.brokers)
        lacking = {str(each) for each in {b.id for b in self._cluster.state.brokers} - alive}
        for topic in known.topics.values():
            for number, partition in topic.partitions.items():
                replicas = set(partition.replicas)
                if partition.leader <= 0 or replicas & alive - set(partition.isrs):
                    lacking.add(f"{topic.topic}-{number}")
        return lacking - self._given_up


def admin(cluster: HasBootstrapServers) -> AdminClient:
    return AdminClient(
        {
            **settings_for(cluster.bootstrap_servers),
            "socket.timeout.ms": CLIENT_TIMEOUT_MS,
            "log_level": 0,
        }
    )


def create_topic(
    cluster: HasBootstrapServers,
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 3,
    config: dict[str, str] | None = None,
) -> None:
    """Create a topic and wait until it can be used, for as long as a loaded machine takes."""
    new = NewTopic(topic, partitions, replication_factor, config=config or {})
    make_topic(admin(cluster), new)


def make_topic(client: AdminClient, new: NewTopic) -> None:
    """As `create_topic`. librdkafka leaves it to us to ask a controller again that has just been
    elected."""
    from confluent_kafka import KafkaError, KafkaException

    def is_made() -> bool:
        asked = client.create_topics(
            [new], operation_timeout=DEADLINE_S, request_timeout=DEADLINE_S
        )
        try:
            asked[new.topic].result(DEADLINE_S + 30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise
            return False
        return True

    wait_until(is_made, f"topic {new.topic} is made")


def partition_metadata(client: AdminClient, topic: str, partition: int = 0) -> Any:
    """Leader and ISR as some live broker tells them; None while it can't."""
    from confluent_kafka import KafkaException

    try:
        metadata = client.list_topics(topic, timeout=5)
    except KafkaException:
        return None
    return metadata.topics[topic].partitions.get(partition)


def leader_of(client: AdminClient, topic: str, partition: int = 0) -> int:
    """Waits for a leader."""

    def leader() -> int | None:
        found = partition_metadata(client, topic, partition)
        return found.leader if found is not None and found.leader > 0 else None

    result = wait_until(leader, f"{topic}-{partition} has a leader")
    assert result is not None
    return result


def wait_for_isr(client: AdminClient, topic: str, size: int, partition: int = 0) -> None:
    def complete() -> bool:
        found = partition_metadata(client, topic, partition)
        return found is not None and len(found.isrs) == size

    wait_until(complete, f"{size} replicas of {topic}-{partition} are in sync")


def not_in_sync(client: AdminClient, topics: Mapping[str, tuple[int, int]]) -> list[str]:
    """A line for each partition that lacks replicas in sync, or has no leader. `topics`: the
    numbers of their partitions and of the replicas of each."""
    from confluent_kafka import KafkaException

    try:
        known = client.list_topics(timeout=5).topics
    except KafkaException as error:
        return [f"the brokers: {error}"]
    lacking = []
    for topic, (partitions, size) in topics.items():
        there = known[topic].partitions if topic in known else {}
        for number in range(partitions):
            found = there.get(number)
            if found is None:
                lacking.append(f"{topic}-{number}, which no broker knows")
            elif found.leader <= 0 or len(found.isrs) < size:
                lacking.append(
                    f"{topic}-{number}, whose leader is {found.leader} and of whose replicas "
                    f"{sorted(found.replicas)} only {sorted(found.isrs)} are in sync"
                )
    return lacking
