"""The keyed sink with a real Spark: each fault at each stage, with SQLite and PostgreSQL. The table
has every record once, and whole micro-batches only, whenever one looks. Source: R-SPARK4; document
004, 5.2.7.

All cases with HEADRACE_FAULTS=full, else two that HEADRACE_SEED or the date picks.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException

from connector import keyed_tables
from integration_tests.background import Background
from integration_tests.cluster_support import (
    ALL_FAULTS,
    SEED,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.databases import database_url, postgres_url
from integration_tests.faulty_sink import FOLDER
from integration_tests.keyed_faults import (
    KILLS_THE_DRIVER,
    OWN_DRIVER,
    Case,
    Fault,
    Stage,
    all_cases,
    sample,
)
from integration_tests.spark_keyed_driver import LAST, PER_BATCH, TABLE, FaultyTable, copy
from integration_tests.spark_support import last_line, produce, spark, topic
from storage_engine.tools.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

__all__ = ["database_url", "postgres_url", "spark", "topic"]

ROOT = Path(__file__).parent.parent
RUN_TIMEOUT_S = 300
CASES = all_cases() if ALL_FAULTS else sample(SEED)
STRUCK = 1
"""The micro-batch in which it happens; with the first of all the table would be made, too."""

BATCHES = 3
GROWN = 700
IN_A_TASK = {Fault.TASK: "fail", Fault.WORKER: "kill", Fault.RETRIED: "kill"}
"""What the file is called that asks for it."""

LOOK_S = 0.05


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as made:
        yield made


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
        self._command = [sys.executable, "-m", "integration_tests.spark_keyed_driver"]
        self._command += [servers, topic, url, str(folder)]
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        # The tests of this file share a server.
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {TABLE}"))

    @contextlib.contextmanager
    def driver(self) -> Iterator[subprocess.Popen[bytes]]:
        """In a process group of its own, with its JVM and its Python workers."""
        self._reached.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
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
        moment = f"{stage.value}-{STRUCK}"
        (self.folder / moment).touch()
        with self.driver() as process:
            wait_until(
                lambda: self._reached.exists() or process.poll() is not None,
                moment,
                timeout_s=RUN_TIMEOUT_S,
            )
            assert process.poll() is None, self._text()
            yield process

    def goes_on(self, process: subprocess.Popen[bytes]) -> None:
        """To its end, whatever that is."""
        self._reached.unlink()
        process.wait(RUN_TIMEOUT_S)

    def ends_well(self) -> None:
        with self.driver() as process:
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
        return self._log.read_text()[-4000:]


def wrongs(looks: set[frozenset[tuple[int, int]]], counts: dict[int, int]) -> list[str]:
    """Micro-batches that somebody saw in part, or without those before them."""
    return [
        f"saw {sorted(look)} of {sorted(counts.items())}"
        for look in looks
        if any(counts.get(batch) != rows for batch, rows in look)
        or sorted(batch for batch, _ in look) != list(range(len(look)))
    ]


class Struck:
    """One case, from its topic to what is in the table."""

    def __init__(self, case: Case, run: Runs, again: Callable[..., None]) -> None:
        self._case, self._run, self._again = case, run, again
        self.kept: dict[int, float] = {}
        """Rows that were committed when it was struck, with what was drawn for them."""
        self.partitions = LAST + 1

    def strike(self, grow: Callable[[], None]) -> None:
        case, run = self._case, self._run
        if case.fault in (*KILLS_THE_DRIVER, Fault.ZOMBIE):
            with run.standing_still(case.stage) as process:
                self._look()
                if case.fault is Fault.ZOMBIE:
                    self._again()
                    self.kept = run.rows()
                    run.goes_on(process)
                    assert run.rows() == self.kept
            if case.fault is Fault.GROWTH:
                grow()
            if case.fault is Fault.PARALLELISM:
                self.partitions = 5
            return
        if case.fault is Fault.DATABASE:
            (run.folder / f"database-{STRUCK}").touch()
            with pytest.raises(StreamingQueryException) as raised:
                self._again()
            assert last_line(raised.value).startswith("[DATABASE_FAILED] ")
        else:
            asked = run.folder / f"{IN_A_TASK[case.fault]}-{STRUCK}"
            asked.touch()
            if case.fault is Fault.RETRIED:
                run.ends_well()
                assert not asked.exists()
                self.kept = run.rows()
                return
            with pytest.raises(StreamingQueryException):
                self._again()
            assert not asked.exists()
        self._look()

    def _look(self) -> None:
        """What is committed, and what Spark knows of it."""
        self.kept = self._run.rows()
        there = STRUCK + 1 if self._case.stage is Stage.AFTER_COMMIT else STRUCK
        assert len(self.kept) == there * PER_BATCH
        assert self._run.committed(STRUCK - 1) and not self._run.committed(STRUCK)


@pytest.mark.parametrize(
    ("case", "database_url"), [(case, case.database) for case in CASES], indirect=["database_url"],
    ids=map(str, CASES),
)  # fmt: skip
def test_every_record_is_there_once_whatever_goes_wrong(
    spark, cluster, topic, database_url, tmp_path, monkeypatch, case
):
    servers = cluster.bootstrap_servers
    create_topic(cluster, topic, partitions=LAST + 1, replication_factor=1)

    def write(first: int, last: int) -> None:
        ids = ({"value": b"%d" % n, "partition": n % (LAST + 1)} for n in range(first, last))
        produce(servers, topic, ids)

    ids = BATCHES * PER_BATCH
    write(0, ids)
    run = Runs(servers, topic, database_url, tmp_path)
    # The replay is in the session of the tests.
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(keyed_tables, "KeyedTable", FaultyTable)

    def again(**how: int) -> None:
        copy(spark, servers, topic, database_url, tmp_path, **how)

    struck = Struck(case, run, again)
    with Looker(run.engine) as looker:
        struck.strike(lambda: write(ids, ids + GROWN))
        again(min_partitions=struck.partitions)
        whole, counts = run.rows(), run.batches()
        wait_until(lambda: frozenset(counts.items()) in looker.looks, "a last look")
    assert sorted(whole) == list(range(ids + GROWN * (case.fault is Fault.GROWTH)))
    # What was committed is not written again: it would have other numbers.
    assert struck.kept.items() <= whole.items()
    assert wrongs(looker.looks, counts) == []

    if case.fault in OWN_DRIVER:
        # They take long enough.
        return
    # Another query, as it counts; the same records, as their keys tell.
    shutil.rmtree(tmp_path / "checkpoint")
    again()
    rewound = run.rows()
    assert sorted(rewound) == sorted(whole) and rewound != whole
