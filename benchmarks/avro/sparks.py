"""A side of the comparison: its brokers, its Spark, and its turns, of which each is checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.avro.registry import RunningRegistry
from benchmarks.avro.rides import PARTITIONS
from benchmarks.avro.rows import Measured
from benchmarks.beside_kafka.processor_time import cpu_times
from benchmarks.beside_kafka.sides import Spark
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.beside_kafka.topics import check_rows, target
from benchmarks.support.brokers import Brokers
from benchmarks.typed.columns import ALL
from storage_engine.tools.errors import CommandError


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The rows that a read of all has to find, and their sums."""

    rows: int
    checksum: int
    """`rides.checksum`."""
    digest: int
    """The digest of all columns."""


class Side:
    """One of the two sides."""

    def __init__(
        self, name: str, brokers: Brokers, spark: Spark, registry: RunningRegistry, schema_id: int
    ) -> None:
        """`brokers`: their processor time counts, and so that of a registry among them."""
        self.name = name
        self._brokers = brokers
        self._spark = spark
        self._registry = registry
        self._schema_id = schema_id
        self._targets = 0

    def digest_of_made(self, rows: int) -> int:
        """Return the digest of the rows that a topic shall have."""
        return self._spark.do({"kind": "made", "rows": rows})["digest"]

    def check_all_columns(self, topic: str, expected: Expected) -> None:
        """CommandError unless this side reads all columns as they were made."""
        found = self._spark.do(self._job("digest", topic, expected.rows, ALL))
        self._check(topic, found, expected.rows, expected.digest)

    def read(self, topic: str, columns: Sequence[str], expected: Expected) -> Measured:
        """Read these columns of all rows."""
        job = self._job("read", topic, expected.rows, columns)
        measured, found = self._timed(job)
        self._check(topic, found, expected.rows, expected.checksum)
        return measured

    def write(self, expected: Expected, *, is_read_back: bool) -> Measured:
        """Write rows from Spark's memory into a new topic, and count them there."""
        self._targets += 1
        servers = self._brokers.bootstrap_servers
        with target(servers, f"out-{self._targets}", PARTITIONS) as out:
            measured, _ = self._timed(self._job("write", out, expected.rows, ALL))
            if is_read_back:
                self.check_all_columns(out, expected)
            else:
                check_rows(servers, out, PARTITIONS, expected.rows)
        return measured

    def _job(self, kind: str, topic: str, rows: int, columns: Sequence[str]) -> SparkJob:
        return {
            "kind": kind,
            "topic": topic,
            "rows": rows,
            "columns": list(columns),
            "registry": self._registry.url,
            "schema_id": self._schema_id,
        }

    def _timed(self, job: SparkJob) -> tuple[Measured, Answer]:
        before = cpu_times(self._brokers.pids, self._spark.pid)
        answer = self._spark.do(job)
        took = cpu_times(self._brokers.pids, self._spark.pid).since(before)
        (batch,) = answer["batches"]
        return Measured(rows=batch["rows"], time_s=batch["time_ms"] / 1000, cpu=took), answer

    def _check(self, topic: str, found: Answer, rows: int, digest: int) -> None:
        if (found["rows"], found["digest"]) != (rows, digest):
            raise CommandError(
                f"{self.name} does not read the rows of '{topic}' that were written: "
                f"{found['rows']} rows with the sum {found['digest']}, and not {rows} with {digest}"
            )
