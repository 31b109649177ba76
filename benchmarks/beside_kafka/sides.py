"""A side of the comparison: its brokers, its Spark, and the measurement of jobs on them."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.beside_kafka import topics
from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.processor_time import cpu_times
from benchmarks.beside_kafka.rows import PARTITIONS, WRITTEN_PARTITIONS, Batch, Job, Measured
from benchmarks.beside_kafka.tethered import tethered
from benchmarks.beside_kafka.told import SparkJob, ToldProcess
from benchmarks.support.brokers import Brokers
from storage_engine.tools.errors import CommandError

_ANSWER_S = 1_800


class Spark(ToldProcess):
    """The process that does one side's jobs."""

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, python: Path, folder: Path, worker: str, arguments: Sequence[str]
    ) -> Iterator["Spark"]:
        """Run a Spark within the block, and wait until it is ready; the module `worker` does the
        jobs."""
        command = [str(python), "-m", worker, *arguments]
        unset = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
        environment = {name: text for name, text in os.environ.items() if name not in unset}
        log = folder / "spark.log"
        environment |= {"PYTHONPATH": str(ROOT)}
        environment |= {"SPARK_LOCAL_DIRS": str(folder), "TMPDIR": str(folder)}
        with tethered(
            command, log=log, folder=folder, environment=environment, talks=True
        ) as process:
            spark = cls("Spark", process, log, _ANSWER_S)
            spark.answer(_ANSWER_S)
            yield spark


class Side:
    """One of the two sides; its topics are filled when a job needs them."""

    def __init__(self, name: str, brokers: Brokers, spark: Spark, sizes: dict[str, int]) -> None:
        self.name = name
        self._servers, self._broker_pids = brokers
        self._spark = spark
        self._sizes = sizes
        self._filled: set[str] = set()
        self._targets = 0

    def fill(self, topic: str) -> bool:
        """Fill a topic; False if it is filled already, or if the job reads none."""
        if not topic or topic in self._filled:
            return False
        topics.fill(self._servers, topic, PARTITIONS[topic], self._sizes[topic])
        self._filled.add(topic)
        return True

    def measure(self, job: Job, *, is_counted: bool) -> Measured:
        """Measure one round. `is_counted`: the written rows are read back after it, and counted."""
        rows = self._sizes[job.topic or job.name]
        asked: SparkJob = {"kind": job.kind, "topic": job.topic, "rows": rows, "out": None}
        asked["rows_per_batch"] = job.rows_per_batch
        if not job.is_copied:
            return self._timed(job, asked)
        self._targets += 1
        partitions = PARTITIONS[job.topic] if job.topic else WRITTEN_PARTITIONS
        with topics.target(self._servers, f"out-{self._targets}", partitions) as out:
            measured = self._timed(job, {**asked, "out": out})
            topics.check_rows(self._servers, out, partitions, rows)
            if is_counted:
                self._check_count(out, rows)
        return measured

    def _timed(self, job: Job, asked: SparkJob) -> Measured:
        before = cpu_times(self._broker_pids, self._spark.pid)
        answer = self._spark.do(asked)
        cpu = cpu_times(self._broker_pids, self._spark.pid).since(before)
        batches = [Batch(**each) for each in answer["batches"]]
        return Measured(
            batches=batches[job.warm_up :] or batches,
            rows=sum(batch.rows for batch in batches),
            cpu=cpu,
        )

    def _check_count(self, topic: str, rows: int) -> None:
        asked: SparkJob = {"kind": "count", "topic": topic, "rows": rows}
        found = self._spark.do(asked)["rows"]
        if found != rows:
            raise CommandError(f"{self.name} wrote {found} rows where {rows} were given to it")
