"""Runs a query on the exactly-once sink, has one thing go wrong at one moment, and has what it
wrote judged. Nothing here looks at rows.

The query takes ids from topics to a target of three partitions, in micro-batches; the fault strikes
in the second one, while a reader of committed rows is at work. Whatever fails is started again on
its checkpoint, as whoever runs a query would, until it ends.
"""

import contextlib
import functools
import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from integration_tests.exactly_once import avro_cells, typed_cells
from integration_tests.exactly_once.committed_reader import CommittedReader, read_all, stable_ends
from integration_tests.exactly_once.exactly_once import delays_s, judge, prompt
from integration_tests.exactly_once.query_server import (
    LOCAL,
    SPECULATING,
    QueryServer,
    Run,
    SessionServer,
)
from integration_tests.exactly_once.sink_faults import (
    KILLS_THE_DRIVER,
    Case,
    Fault,
    Stage,
)
from integration_tests.exactly_once.sink_queries import (
    CLOSING,
    PARTITIONS,
    SHARES_TASKS,
    STATEFUL,
    TWO_SOURCES,
)
from integration_tests.support.client_files import file_for
from integration_tests.support.cluster_support import (
    HEALED_S,
    admin,
    create_topic,
    leader_of,
    not_in_sync,
    partition_metadata,
    running_cluster,
    wait_until,
    wait_while_lacking,
)
from integration_tests.support.fault_proxy import FaultProxy
from integration_tests.support.spark_support import NO_WORKER, consume, produce
from integration_tests.support.transactional_clients import Confluent
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.apis.commit_batch import API as COMMIT_BATCH
from storage_engine.tests.client.registry.small_registry import SmallRegistry
from storage_engine.tools.local.local_cluster import LocalCluster

STATE = "__transaction_state"
STATE_PARTITIONS = 5
STATE_TOPIC = {STATE: (STATE_PARTITIONS, 2)}
"""With the number of its partitions, and of the replicas of each."""

PER_BATCH = 1_000
BATCHES = 3
STRUCK = 1
"""The micro-batch in which it happens."""

GROWN = 700
RUN_TIMEOUT_S = 300
RESTARTS = 6
CUT_S = 1.0
LATE_FACTOR = 5
"""Machines that test are busy with other tests: so much more time than `PROMPT_S`."""

SETTINGS = (
    ("transaction.state.log.num.partitions", str(STATE_PARTITIONS)),
    # So that it does without the broker that is to write no markers.
    ("transaction.state.log.replication.factor", "2"),
    ("transaction.state.log.min.isr", "1"),
)


class Bench:
    """A cluster and a Spark, shared by cases as far as these leave them alive."""

    def __init__(
        self, cluster: LocalCluster, folder: Path, session: SparkSession | None = None
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self._session = session
        self._servers: dict[str, QueryServer | SessionServer] = {}
        self._stack = contextlib.ExitStack()

    @functools.cached_property
    def registry(self) -> SmallRegistry:
        """For cases between topics of Avro."""
        return self._stack.enter_context(avro_cells.registry_of_sources())

    def server(self, master: str = LOCAL) -> QueryServer | SessionServer:
        """A server that is alive and waits for a run."""
        known = self._servers.get(master)
        if known is not None and known.alive:
            return known
        if known is not None and master == LOCAL and self._session is not None:
            successor = self._servers[master] = SessionServer(self._session)
            return successor
        made = self._servers[master] = QueryServer(self.folder, master)
        assert made.answer(RUN_TIMEOUT_S) == "ready", made.last_words()
        return made

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()
        self._servers.clear()

    def end(self) -> None:
        self.close()
        self._stack.close()

    def run(self, case: Case) -> None:
        """AssertionError when it was not exactly once."""
        try:
            _CaseRun(self, case).run()
        except BaseException:
            # It may be in the midst of a query.
            self.close()
            raise


@contextlib.contextmanager
def bench(
    folder: Path, *, is_secure: bool = False, session: SparkSession | None = None
) -> Iterator[Bench]:
    """A bench that is gone after the block. `session`: what queries run in once a driver is killed,
    instead of another driver."""
    with running_cluster(folder / "cluster", settings=SETTINGS, is_secure=is_secure) as cluster:
        made = Bench(cluster, folder, session)
        try:
            yield made
        finally:
            made.end()


class _CaseRun:
    def __init__(self, bench: Bench, case: Case) -> None:
        self._bench = bench
        self._case = case
        self._cluster = bench.cluster
        self._admin = admin(self._cluster)
        name = f"t-{uuid.uuid4().hex[:8]}"
        self._folder = bench.folder / name
        self._folder.mkdir()
        self._target = f"{name}-target"
        self._sources = [f"{name}-source"]
        self._source_partitions = 6 if case.query in SHARES_TASKS else 2
        if case.query in TWO_SOURCES:
            self._sources.append(f"{name}-other")
        self._master = SPECULATING if case.fault is Fault.SPECULATION else LOCAL
        self._value_of = (
            avro_cells.value_of
            if case.is_avro
            else typed_cells.value_of
            if case.is_typed
            else bytes
        )
        self._ids = 0
        self._stack = contextlib.ExitStack()
        self._proxies: dict[int, FaultProxy] = {}

    def run(self) -> None:
        self._prepare()
        self._reader = CommittedReader(
            self._cluster.bootstrap_servers, self._target, PARTITIONS, self._value_of
        )
        with self._reader:
            try:
                self._start()
                self._strike()
                self._to_its_end()
            finally:
                self._clean_up()
            self._reader.wait_until_stable()
        self._judge()

    # --- before and after ---

    def _prepare(self) -> None:
        is_typed = self._case.is_typed
        for topic in self._sources:
            settings = typed_cells.SOURCE if is_typed else {}
            create_topic(self._cluster, topic, partitions=self._source_partitions, config=settings)
            if self._case.is_avro:
                avro_cells.register(self._bench.registry, topic)
        # Its first partition's leader is to be the one that writes no markers.
        settings = {"min.insync.replicas": "2", **(typed_cells.TARGET if is_typed else {})}
        create_topic(self._cluster, self._target, partitions=PARTITIONS, config=settings)
        grows = self._case.fault is Fault.GROWTH
        self._grow(BATCHES * PER_BATCH, closing=not grows)
        self._output_leader = leader_of(self._admin, self._target, 0)
        file = file_for(self._cluster.bootstrap_servers)
        self._run = Run(
            query=self._case.query,
            servers=self._cluster.bootstrap_servers,
            sources=self._sources,
            target=self._target,
            sink_id=self._sink_id(),
            folder=str(self._folder),
            per_batch=PER_BATCH,
            min_partitions=2,
            is_typed=is_typed,
            registry=self._bench.registry.url if self._case.is_avro else None,
            client_file=None if file is None else str(file),
        )

    def _grow(self, count: int, *, closing: bool) -> None:
        ids = [b"%d" % each for each in range(self._ids, self._ids + count)]
        self._ids += count
        partitions = self._source_partitions
        value_of: Callable[[bytes], bytes] = bytes
        if self._case.is_avro:
            value_of = avro_cells.as_record
        elif self._case.is_typed:
            value_of = typed_cells.as_record
        records = [
            {"value": value_of(each), "partition": number % partitions}
            for number, each in enumerate(ids)
        ]
        if closing and self._case.query in STATEFUL:
            last = value_of(b"%d" % CLOSING)
            records += [{"value": last, "partition": each} for each in range(partitions)]
        for topic in self._sources:
            produce(self._cluster.bootstrap_servers, topic, records)

    def _sink_id(self) -> str:
        """A sink id whose coordinator does not need the leader of the output."""
        first = f"{self._target}-0"
        if self._case.stage is not Stage.RECORDED:
            return first
        # The first sink makes the state topic.
        if partition_metadata_of_state(self._admin, first) is None:
            Confluent(self._cluster.bootstrap_servers, "makes the topic").close()
        return next(
            name
            for name in (f"{self._target}-{number}" for number in range(1000))
            if self._output_leader not in self._state_replicas(name)
        )

    def _state_replicas(self, sink_id: str) -> list[int]:
        found = wait_until(
            lambda: partition_metadata_of_state(self._admin, sink_id), "the state topic is there"
        )
        return list(found.replicas)

    def _clean_up(self) -> None:
        """All brokers run, no process of the case is left, and nothing is cut."""
        self._stack.close()
        for broker in self._cluster.state.brokers:
            if broker.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(broker.pid, signal.SIGCONT)
            self._cluster.start_broker(broker.id)
        sources = dict.fromkeys(self._sources, (self._source_partitions, 3))
        topics = sources | {self._target: (PARTITIONS, 3)} | STATE_TOPIC
        wait_while_lacking(lambda: not_in_sync(self._admin, topics), timeout_s=HEALED_S)

    def _judge(self) -> None:
        case, watched = self._case, self._reader.watched
        servers = self._cluster.bootstrap_servers
        found = read_all(servers, self._target, PARTITIONS, self._value_of)
        complaints = judge(found, watched, range(self._ids))
        if not case.disturbs_brokers:
            delays = delays_s(watched, self._committed_at())
            complaints += prompt(delays, limit_s=LATE_FACTOR)
        assert complaints == [], f"{case}: {complaints}"
        rows = sum(map(len, found.values()))
        every = consume(self._cluster.bootstrap_servers, self._target, isolation="read_uncommitted")
        if self._attempts_are_given_up():
            assert len(every) > rows, f"{case}: the fault struck before anything was written"

    def _attempts_are_given_up(self) -> bool:
        case = self._case
        if case.stage in (Stage.SOME_ROWS, Stage.ALL_ROWS):
            attempts = (Fault.WORKER, Fault.TASK_FAILS, Fault.SPECULATION)
            return case.fault in (*KILLS_THE_DRIVER, *attempts)
        if case.stage is Stage.BEFORE_COMMIT:
            return case.fault in (*KILLS_THE_DRIVER, Fault.WORKER)
        return case.fault is Fault.ZOMBIE

    def _committed_at(self) -> dict[int, float]:
        lines = (self._folder / "commits").read_text().splitlines()
        # A replay's commit is not the first.
        pairs = [line.split() for line in reversed(lines)]
        return {int(batch): float(moment) for batch, moment in pairs}

    # --- the run ---

    def _start(self) -> None:
        for moment in self._moments():
            (self._folder / f"stop-{moment}-{STRUCK}").touch()
        if self._case.fault is Fault.ZOMBIE:
            (self._folder / f"zombie-{STRUCK}").touch()
        if self._case.fault is Fault.NETWORK:
            self._proxies = self._stack.enter_context(proxied(self._cluster, self._folder))
        self._server = self._bench.server(self._master)
        self._server.start(self._run)

    def _moments(self) -> list[str]:
        match self._case.stage:
            case Stage.BEFORE_WRITE | Stage.SOME_ROWS | Stage.ALL_ROWS | Stage.BEFORE_COMMIT:
                return [self._case.stage.value.replace(" ", "-")]
            case Stage.RECORDED:
                return ["before-commit", "answered"]
            case _:
                return ["answered"]

    def _to_its_end(self) -> None:
        for _ in range(RESTARTS):
            answer = self._server.answer(RUN_TIMEOUT_S) if self._server.alive else "killed"
            if answer == "ended":
                return
            assert answer is not None, self._server.last_words()
            self._server = self._bench.server(self._master)
            self._server.start(self._run)
        raise AssertionError(f"{self._case}: {answer}; {self._server.last_words()}")

    def _reaches(self, moment: str) -> int:
        """Waits until a process stops at that moment, and returns it."""
        reached = self._folder / "reached"

        def there() -> bool:
            answer = self._server.answer(0.02)
            if answer is not None and NO_WORKER in answer:
                self._server.start(self._run)
            else:
                assert answer is None, f"{answer} before {moment}: {self._server.last_words()}"
            return reached.exists()

        wait_until(there, f"{self._case}: {moment}", timeout_s=RUN_TIMEOUT_S)
        pid, name = reached.read_text().split()
        assert name == moment
        return int(pid)

    def _goes_on(self) -> None:
        (self._folder / "reached").unlink()

    def _strike(self) -> None:
        moments = self._moments()
        pid = self._reaches(moments[0])
        if self._case.stage is Stage.RECORDED:
            self._signal(self._output_leader, signal.SIGSTOP)
            self._goes_on()
            pid = self._reaches(moments[1])
        elif self._case.stage is Stage.MARKED:
            wait_until(self._is_stable, "all markers are written")
        if self._case.stage is Stage.RETURNED:
            with self._without_a_commit_log():
                self._goes_on()
                answer = self._server.answer(RUN_TIMEOUT_S)
                assert answer is not None and answer.startswith("failed"), answer
                self._do(pid)
            if self._server.alive:
                self._server.start(self._run)
        else:
            self._do(pid)
        if self._case.stage is Stage.RECORDED:
            self._signal(self._output_leader, signal.SIGCONT)
        with contextlib.suppress(FileNotFoundError):
            self._goes_on()

    def _do(self, pid: int) -> None:
        """Causes the fault."""
        match self._case.fault:
            case Fault.DRIVER:
                self._server.kill()
            case Fault.GROWTH:
                self._grow(GROWN, closing=True)
                self._server.kill()
            case Fault.PARALLELISM:
                self._server.kill()
                self._run = replace(self._run, min_partitions=5)
            case Fault.WORKER:
                os.kill(pid, signal.SIGKILL)
            case Fault.OUTPUT_LEADER:
                self._cluster.kill_broker(self._output_leader)
            case Fault.COORDINATOR:
                self._cluster.kill_broker(self._coordinator())
            case Fault.CONTROLLER:
                self._cluster.kill_broker(self._admin.list_topics(timeout=60).controller_id)
            case Fault.TASK_FAILS:
                (self._folder / "then").touch()
            case Fault.SPECULATION:
                wait_until(self._is_committed, "another attempt wins", timeout_s=RUN_TIMEOUT_S)
            case Fault.ZOMBIE:
                self._wake_the_zombie()
            case Fault.NETWORK:
                self._cut()

    # --- single faults ---

    def _wake_the_zombie(self) -> None:
        (self._folder / "zombie-goes-on").touch()
        ended = self._folder / "zombie-ended"
        wait_until(ended.exists, "the zombie ends")
        outcome = ended.read_text()
        if self._case.stage in (Stage.RECORDED, Stage.MARKED):
            assert outcome == "drained", outcome
        else:
            assert outcome == "wrote all", outcome

    def _cut(self) -> None:
        """A task is without brokers for a while. A commit arrives, and its answer doesn't."""
        if self._case.stage is Stage.BEFORE_COMMIT:
            for proxy in self._proxies.values():
                proxy.hold_from(COMMIT_BATCH.key)
            self._goes_on()
            wait_until(self._is_committed, "the commit arrives")
        else:
            self._goes_on()
        for proxy in self._proxies.values():
            proxy.cut()
        time.sleep(CUT_S)
        for proxy in self._proxies.values():
            proxy.heal()

    @contextlib.contextmanager
    def _without_a_commit_log(self) -> Iterator[None]:
        """Spark can't write it, and gives up."""
        commits = self._folder / "checkpoint" / "commits"
        aside = commits.with_name("commits-aside")
        commits.rename(aside)
        commits.touch()
        try:
            yield
        finally:
            commits.unlink()
            aside.rename(commits)

    # --- looking ---

    def _coordinator(self) -> int:
        return leader_of(self._admin, STATE, state_partition(self._run.sink_id, STATE_PARTITIONS))

    def _is_stable(self) -> bool:
        servers = self._cluster.bootstrap_servers
        return stable_ends(servers, self._target, PARTITIONS) is not None

    def _is_committed(self) -> bool:
        """Whether the batch that is struck is readable."""
        return any(STRUCK in each.seen_at for each in self._reader.watched.values())

    def _signal(self, broker: int, number: signal.Signals) -> None:
        pid = next(each.pid for each in self._cluster.state.brokers if each.id == broker)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def proxied(cluster: LocalCluster, folder: Path) -> Iterator[dict[int, FaultProxy]]:
    """Tasks and commits of a query in that folder reach the brokers by these, while the block
    lasts."""
    with contextlib.ExitStack() as stack:
        proxies = {
            broker.id: stack.enter_context(FaultProxy((broker.host, broker.port)))
            for broker in cluster.state.brokers
        }
        ports = {
            f"{broker.host}:{broker.port}": proxies[broker.id].port
            for broker in cluster.state.brokers
        }
        (folder / "proxies").write_text(json.dumps(ports))
        stack.callback((folder / "proxies").unlink)
        yield proxies


def partition_metadata_of_state(client: AdminClient, sink_id: str) -> Any:
    """None while there is no state topic."""
    try:
        return partition_metadata(client, STATE, state_partition(sink_id, STATE_PARTITIONS))
    except KeyError:
        return None
