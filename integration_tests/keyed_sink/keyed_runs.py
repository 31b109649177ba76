"""Runs a query on the keyed sink, has one thing go wrong at one moment, and looks at the table all
the while. It notes what is committed when it strikes.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from pyspark.errors import StreamingQueryException

from integration_tests.exactly_once.query_server import LOCAL, SPECULATING
from integration_tests.keyed_sink.databases import Server
from integration_tests.keyed_sink.keyed_faults import (
    ENDS_WELL,
    KILLS_THE_DRIVER,
    STRIKES_BESIDE,
    Case,
    Fault,
    Stage,
)
from integration_tests.keyed_sink.spark_keyed_driver import LAST, PER_BATCH, TABLE
from integration_tests.support.background import Background
from integration_tests.support.cluster_support import admin, leader_of, wait_until
from integration_tests.support.fault_proxy import FaultProxy
from integration_tests.support.proxied_cluster import ProxiedCluster
from integration_tests.support.spark_support import last_line

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 300
STRUCK = 1
"""The micro-batch in which it happens; with the first of all the table would be made, too."""

IN_A_TASK = {
    Fault.TASK: "fail",
    Fault.REPEATED: "fail",
    Fault.WORKER: "kill",
    Fault.RETRIED: "kill",
    Fault.SPECULATION: "slow",
}
"""What the file is called that asks for it."""

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
"""By dialect, how many wait for a lock."""

LOOK_S = 0.05
CUT_S = 2.0


class Looker(Background):
    """Counts the rows of each micro-batch again and again while others write."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__()
        self._engine = engine
        self.looks: set[frozenset[tuple[int, int]]] = set()
        """Different ones: the micro-batches with their rows."""

    def _work(self) -> None:
        while not self._stop.wait(LOOK_S):
            # SQLite says when somebody else is about to write.
            with contextlib.suppress(sa.exc.OperationalError):
                if sa.inspect(self._engine).has_table(TABLE):
                    self.looks.add(self._look())

    def _look(self) -> frozenset[tuple[int, int]]:
        counts = sa.text(f"SELECT batch, count(*) FROM {TABLE} GROUP BY batch")
        with self._engine.connect() as connection:
            found = connection.execute(counts).all()
        return frozenset((int(row[0]), int(row[1])) for row in found)


class Runs:
    """A query in a driver of its own, and what came of it."""

    def __init__(self, servers: str, topic: str, url: str, folder: Path) -> None:
        self.folder, self._reached, self._log = folder, folder / "reached", folder / "log"
        self._query = [servers, topic, url, str(folder)]
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        """By a way of its own, which no fault strikes."""
        # The tests of this file share a server.
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {TABLE}"))

    @contextlib.contextmanager
    def driver(self, master: str = LOCAL) -> Iterator[subprocess.Popen[bytes]]:
        """In a process group of its own, with its JVM and its Python workers."""
        self._reached.unlink(missing_ok=True)
        command = [sys.executable, "-m", "integration_tests.keyed_sink.spark_keyed_driver", master]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*command, *self._query], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextlib.contextmanager
    def standing_still(self, stage: Stage) -> Iterator[subprocess.Popen[bytes]]:
        """A driver that does, within the block, and is killed at its end."""
        self.stop_at(stage)
        with self.driver() as process:
            self.wait_until_reached(stage, lambda: process.poll() is not None)
            yield process

    def stop_at(self, stage: Stage) -> None:
        """Ask for it."""
        self._reached.unlink(missing_ok=True)
        (self.folder / f"{stage.value}-{STRUCK}").touch()

    def wait_until_reached(self, stage: Stage, over: Callable[[], bool]) -> None:
        wait_until(lambda: self._reached.exists() or over(), stage.value, timeout_s=RUN_TIMEOUT_S)
        assert not over(), self._text()

    def go_on(self) -> None:
        """Who stands still may."""
        self._reached.unlink(missing_ok=True)

    def ends_well(self, master: str) -> None:
        with self.driver(master) as process:
            assert process.wait(RUN_TIMEOUT_S) == 0, self._text()

    def committed(self, batch: int) -> bool:
        """Whether Spark has written that down."""
        return (self.folder / "checkpoint" / "commits" / str(batch)).exists()

    def rows(self) -> dict[int, float]:
        """By id what was drawn for it; AssertionError when one is there twice."""
        with self.engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT id, drawn FROM {TABLE}")).all()
        rows = {int(row[0]): float(row[1]) for row in found}
        assert len(rows) == len(found)
        return rows

    def batches(self) -> dict[int, int]:
        """The rows of each micro-batch."""
        with self.engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT batch FROM {TABLE}")).all()
        return dict(Counter(int(row[0]) for row in found))

    def _text(self) -> str:
        return self._log.read_text()[-4000:] if self._log.exists() else "no log"


def wrongs(looks: set[frozenset[tuple[int, int]]], counts: dict[int, int]) -> list[str]:
    """Micro-batches that somebody saw in part, or without those before them."""
    return [
        f"saw {sorted(look)} of {sorted(counts.items())}"
        for look in looks
        if any(counts.get(batch) != rows for batch, rows in look)
        or sorted(batch for batch, _ in look) != list(range(len(look)))
    ]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a query works with, as far as its case disturbs it."""

    topic: str
    brokers: ProxiedCluster | None = None
    server: Server | None = None
    to_server: FaultProxy | None = None
    """By which the query reaches it."""


class Struck:
    """One case, from its topic to what is in the table."""

    def __init__(
        self, case: Case, run: Runs, again: Callable[[], None], around: Surroundings
    ) -> None:
        """`again` runs the query to its end, here."""
        self._case, self._run, self._again, self._around = case, run, again, around
        self.kept: dict[int, float] = {}
        """Rows that were committed when it was struck, with what was drawn for them."""
        self.partitions = LAST + 1

    def strike(self, grow: Callable[[], None]) -> None:
        fault, run = self._case.fault, self._run
        if fault in KILLS_THE_DRIVER:
            with run.standing_still(self._case.stage):
                self._look()
            if fault is Fault.GROWTH:
                grow()
            if fault is Fault.PARALLELISM:
                self.partitions = 5
        elif fault is Fault.ZOMBIE:
            self._leave_a_zombie()
        elif fault in ENDS_WELL:
            asked = self._ask_a_task()
            run.ends_well(SPECULATING if fault is Fault.SPECULATION else LOCAL)
            assert not asked.exists()
            self.kept = run.rows()
        elif fault in STRIKES_BESIDE:
            self._strike_beside()
        else:
            asked = self._ask_a_task() if fault in IN_A_TASK else self._ask_the_database()
            failure = self._attempt()
            assert failure is not None and not asked.exists()
            if fault is Fault.DATABASE:
                assert last_line(failure).startswith("[DATABASE_FAILED] ")
            self._look()

    # --- faults ---

    def _ask_a_task(self) -> Path:
        asked = self._run.folder / f"{IN_A_TASK[self._case.fault]}-{STRUCK}"
        asked.touch()
        return asked

    def _ask_the_database(self) -> Path:
        asked = self._run.folder / f"database-{STRUCK}"
        asked.touch()
        return asked

    def _leave_a_zombie(self) -> None:
        """It goes on when its successor has come to the end, or waits for it."""
        run, stage = self._run, self._case.stage
        # The zombie goes first: its successor may wait for it.
        with ThreadPoolExecutor(1) as pool, run.standing_still(stage) as zombie:
            self._look()
            successor = pool.submit(self._attempt)
            if stage in (Stage.BEFORE_WRITE, Stage.AFTER_COMMIT):
                assert successor.result(RUN_TIMEOUT_S) is None
                self.kept = run.rows()
            else:
                self._wait_until_it_waits(successor)
                assert run.rows() == self.kept
            run.go_on()
            zombie.wait(RUN_TIMEOUT_S)
            successor.result(RUN_TIMEOUT_S)
        assert self.kept.items() <= run.rows().items()

    def _wait_until_it_waits(self, successor: Future[StreamingQueryException | None]) -> None:
        """For the zombie's lock; SQLite gives up soon."""
        wait_until(
            lambda: self._waits_for_a_lock() or successor.done(),
            "the successor waits",
            timeout_s=RUN_TIMEOUT_S,
        )
        if successor.done():
            failure = successor.result()
            assert failure is not None and "database is locked" in last_line(failure)

    def _waits_for_a_lock(self) -> bool:
        waiting = WAITING.get(self._run.engine.dialect.name)
        if waiting is None:
            return False
        with self._run.engine.connect() as connection:
            return bool(connection.scalar(sa.text(waiting)))

    def _strike_beside(self) -> None:
        fault, stage = self._case.fault, self._case.stage
        answer_is_lost = fault is Fault.DATABASE_NETWORK and stage is Stage.AFTER_COMMIT
        self._run.stop_at(Stage.ALL_ROWS if answer_is_lost else stage)
        with self._at_work() as query:
            self._run.wait_until_reached(stage, query.done)
            if answer_is_lost:
                self._lose_the_answer(query)
            else:
                self._look()
                self._disturb(query)

    def _disturb(self, query: Future[StreamingQueryException | None]) -> None:
        """And undo it."""
        around = self._around
        match self._case.fault:
            case Fault.SERVER:
                assert around.server is not None
                around.server.kill()
                try:
                    self._goes_on_without_a_database(query)
                finally:
                    around.server.start()
                assert self.kept == self._run.rows()
            case Fault.DATABASE_NETWORK:
                assert around.to_server is not None
                around.to_server.cut()
                self._goes_on_without_a_database(query)
                around.to_server.heal()
                assert self.kept == self._run.rows()
            case Fault.SOURCE_LEADER:
                assert around.brokers is not None
                leader = leader_of(admin(around.brokers), around.topic)
                around.brokers.kill(leader)
                self._run.go_on()
                query.result(RUN_TIMEOUT_S)
                around.brokers.start(leader)
            case _:
                assert self._case.fault is Fault.NETWORK and around.brokers is not None
                for proxy in around.brokers.to_brokers.values():
                    proxy.cut()
                self._run.go_on()
                time.sleep(CUT_S)
                around.brokers.heal()
                query.result(RUN_TIMEOUT_S)

    def _goes_on_without_a_database(self, query: Future[StreamingQueryException | None]) -> None:
        self._run.go_on()
        failure = query.result(RUN_TIMEOUT_S)
        assert failure is not None and last_line(failure).startswith("[DATABASE_FAILED] ")

    def _lose_the_answer(self, query: Future[StreamingQueryException | None]) -> None:
        """The commit arrives, and the query does not hear of it."""
        proxy, run = self._around.to_server, self._run
        assert proxy is not None
        proxy.hold(to_target=False)
        run.go_on()
        wait_until(lambda: STRUCK in run.batches(), "the commit arrives")
        proxy.cut()
        failure = query.result(RUN_TIMEOUT_S)
        assert failure is not None and last_line(failure).startswith("[DATABASE_FAILED] ")
        proxy.heal()
        self._look()

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[Future[StreamingQueryException | None]]:
        """The query, in a thread, which ends with the block, whatever happens in it."""
        with ThreadPoolExecutor(1) as pool:
            try:
                yield pool.submit(self._attempt)
            finally:
                self._run.go_on()
                if self._around.to_server is not None:
                    self._around.to_server.heal()
                if self._around.brokers is not None:
                    self._around.brokers.heal()

    # --- looking ---

    def _attempt(self) -> StreamingQueryException | None:
        """Runs the query to its end; what it died of."""
        try:
            self._again()
        except StreamingQueryException as failure:
            return failure
        return None

    def _look(self) -> None:
        """What is committed, and what Spark knows of it."""
        self.kept = self._run.rows()
        there = STRUCK + 1 if self._case.stage is Stage.AFTER_COMMIT else STRUCK
        assert len(self.kept) == there * PER_BATCH
        assert self._run.committed(STRUCK - 1) and not self._run.committed(STRUCK)
