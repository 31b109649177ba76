"""The turns of a side's Spark, and their costs."""

from collections.abc import Callable, Sequence

from benchmarks.beside_kafka.processor_time import cpu_times
from benchmarks.beside_kafka.rows import OURS
from benchmarks.beside_kafka.sides import Spark
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.beside_kafka.topics import check_rows
from benchmarks.support.brokers import Brokers
from benchmarks.typed.columns import ALL
from benchmarks.typed.rows import Measured
from benchmarks.typed.topics import PARTITIONS, target
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.tools.errors import CommandError

_TOPICS_REPLICAS = 3


class SparkSide:
    """The Spark of one side, with its brokers."""

    def __init__(self, name: str, brokers: Brokers, spark: Spark) -> None:
        self._name = name
        self._brokers = brokers
        self._spark = spark
        self._targets = 0

    def fill(self, topic: str, rows: int) -> None:
        """Create a topic, and fill it with JSON, as this side writes it."""
        servers = self._brokers.bootstrap_servers
        with Cluster(servers) as cluster:
            create_topic(cluster, topic, PARTITIONS, _TOPICS_REPLICAS)
        job: SparkJob = {"kind": "fill", "topic": topic, "rows": rows}
        self._spark.do(job)
        check_rows(servers, topic, PARTITIONS, rows)

    def digest_of_made(self, rows: int) -> Answer:
        """Return the digest of the rows that a topic shall have."""
        return self._spark.do({"kind": "made", "rows": rows})

    def check_digest(self, topic: str, expected: Answer) -> None:
        """CommandError unless the topic has these rows."""
        found = self._spark.do(_read("digest", topic, expected["rows"], ALL))
        if found != expected:
            raise CommandError(
                f"topic '{topic}' of {self._name} has not the rows that were written: "
                f"{found} instead of {expected}"
            )

    def read(
        self, topic: str, rows: int, columns: Sequence[str], where: str | None = None
    ) -> Measured:
        """Read these columns of all rows."""
        return self._timed(_read("read", topic, rows, columns, where))

    def read_memory(self, rows: int, columns: Sequence[str]) -> Measured:
        """Read these columns from the source that has its rows in memory."""
        return self._timed({"kind": "memory", "rows": rows, "columns": list(columns)})

    def writer(self, rows: int) -> Callable[[], Measured]:
        """Return a turn that writes rows from Spark's memory into a new topic, and counts them."""
        servers = self._brokers.bootstrap_servers

        def write() -> Measured:
            self._targets += 1
            name = f"out-{self._targets}"
            with target(servers, name, is_typed=self._name == OURS) as out:
                measured = self._timed({"kind": "write", "topic": out, "rows": rows})
                check_rows(servers, out, PARTITIONS, rows)
            return measured

        return write

    def hold(self, rows: int) -> Measured:
        """Give as many rows to a sink in Python that only holds them."""
        return self._timed({"kind": "hold", "rows": rows})

    def _timed(self, job: SparkJob) -> Measured:
        before = cpu_times(self._brokers.pids, self._spark.pid)
        (batch,) = self._spark.do(job)["batches"]
        took = cpu_times(self._brokers.pids, self._spark.pid).since(before)
        return Measured(
            rows=batch["rows"],
            time_s=batch["time_ms"] / 1000,
            brokers_s=took.brokers,
            reader_s=took.jvm + took.python,
        )


def _read(
    kind: str, topic: str, rows: int, columns: Sequence[str], where: str | None = None
) -> SparkJob:
    columns = list(columns)
    return {"kind": kind, "topic": topic, "rows": rows, "columns": columns, "where": where}
