"""The keyed sink with a real Spark, of which drivers and tasks are killed at the worst moments: the
database has every record once, and whole micro-batches only. Source: R-SPARK4; document 004, 5.2.7.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException

from integration_tests.cluster_support import (
    ALL_FAULTS,
    SEED,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.databases import database_url, postgres_url
from integration_tests.faulty_sink import FOLDER
from integration_tests.spark_keyed_driver import LAST, PER_BATCH, TABLE, copy
from integration_tests.spark_support import produce, spark, topic
from storage_engine.tools.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

__all__ = ["database_url", "postgres_url", "spark", "topic"]

ROOT = Path(__file__).parent.parent
RUN_TIMEOUT_S = 300

COMMITTED, WITHIN = "after-commit-0", "within-1"
"""Before Spark has written down that the batch is committed; between two statements."""

DATABASES: tuple[str, ...] = ("sqlite", "postgresql")
MOMENTS: tuple[str, ...] = (COMMITTED, WITHIN)
if not ALL_FAULTS:
    # Each day another pair.
    DATABASES, MOMENTS = (DATABASES[SEED % 2],), (MOMENTS[SEED // 2 % 2],)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as made:
        yield made


class Runs:
    """A query in a driver of its own, and what came of it."""

    def __init__(self, servers: str, topic: str, url: str, folder: Path) -> None:
        self.folder, self._reached, self._log = folder, folder / "reached", folder / "log"
        self._command = [sys.executable, "-m", "integration_tests.spark_keyed_driver"]
        self._command += [servers, topic, url, str(folder)]
        self._engine = sa.create_engine(url)

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

    def is_killed_when(self, moment: str) -> None:
        (self.folder / moment).touch()
        with self.driver() as process:
            wait_until(
                lambda: self._reached.exists() or process.poll() is not None,
                moment,
                timeout_s=RUN_TIMEOUT_S,
            )
            assert process.poll() is None, self._text()

    def committed(self, batch: int) -> bool:
        """Whether Spark has written that down."""
        return (self.folder / "checkpoint" / "commits" / str(batch)).exists()

    def rows(self) -> dict[int, float]:
        """By id what was drawn for it; AssertionError when one is there twice."""
        with self._engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT id, drawn FROM {TABLE}")).all()
        rows = {int(row[0]): float(row[1]) for row in found}
        assert len(rows) == len(found)
        return rows

    def _text(self) -> str:
        return self._log.read_text()[-4000:]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_killed_drivers_and_failed_tasks_double_lose_and_tear_nothing(
    spark, cluster, topic, database_url, tmp_path, monkeypatch, moment
):
    create_topic(cluster, topic, partitions=LAST + 1, replication_factor=1)
    ids = ({"value": b"%d" % n, "partition": n % (LAST + 1)} for n in range(3 * PER_BATCH))
    produce(cluster.bootstrap_servers, topic, ids)
    run = Runs(cluster.bootstrap_servers, topic, database_url, tmp_path)

    run.is_killed_when(moment)
    first = run.rows()
    assert len(first) == PER_BATCH
    assert run.committed(0) is (moment == WITHIN)

    # The rest in the session of the test.
    monkeypatch.setenv(FOLDER, str(tmp_path))
    arguments = (spark, cluster.bootstrap_servers, topic, database_url, tmp_path)
    (tmp_path / "fail-1").touch()
    with pytest.raises(StreamingQueryException, match="a task that fails"):
        copy(*arguments)
    # Batch 0 was replayed where Spark had not heard of it, and would have drawn other numbers.
    assert run.committed(0) and not run.committed(1) and run.rows() == first

    copy(*arguments)
    whole = run.rows()
    assert sorted(whole) == list(range(3 * PER_BATCH))
    assert first.items() <= whole.items()

    # Another query, as it counts; the same records, as their keys tell.
    shutil.rmtree(tmp_path / "checkpoint")
    copy(*arguments)
    again = run.rows()
    assert sorted(again) == sorted(whole) and again != whole
