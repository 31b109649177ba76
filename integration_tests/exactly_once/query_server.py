"""A Spark driver of its own that runs one query after the other, and the test's side of it: killed
with all it has started, and begun again, as the tests want.

    python -m integration_tests.exactly_once.query_server MASTER DIR

Reads a line of JSON for each run (`Run`) and answers with a line when the query is over: `ended`,
or why it failed. A query writes through `sink_moments`, and knows nothing of faults.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).parents[2]
LOCAL = "local[2,4]"
"""Two tasks at a time, each tried up to four times."""

SPECULATING = "speculating"
"""A standalone Spark with executors of one core on two hosts: it tries no second copy of a task on
the host of the first."""

HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 120

DEAD = "dead"
"""The command line of a process that nobody has waited for."""

PREFIX = "query-server "
"""Of answers; whatever else is printed is for the log."""

REQUEST_TIMEOUT_MS = 5_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a query, to the end of what is there, or until it is killed."""

    query: str
    servers: str
    sources: list[str]
    target: str
    sink_id: str
    folder: str
    """With the checkpoint, and what `sink_moments` looks for."""
    per_batch: int
    min_partitions: int
    endless: bool = False
    broken: str | None = None
    """One of `broken_sinks`."""
    is_typed: bool = False
    """Between typed topics."""
    registry: str | None = None
    """The schema registry, between topics of Avro."""
    client_file: str | None = None
    """Settings by which to connect, of a secured cluster."""


def serve(master: str, folder: str) -> None:
    from integration_tests.exactly_once.sink_moments import MomentsSource

    spark = session("headrace-query-server", master, folder)
    spark.dataSource.register(MomentsSource)
    _tell("ready")
    for line in sys.stdin:
        _tell(_run(spark, Run(**json.loads(line))))


def session(name: str, master: str, folder: str) -> "SparkSession":
    """On Spark's own masters, or SPECULATING, which works in the folder."""
    from integration_tests.support.spark_support import new_session

    if master != SPECULATING:
        return new_session(name, master=master)
    settings = (
        ("spark.speculation", "true"),
        ("spark.speculation.interval", "100ms"),
        ("spark.speculation.minTaskRuntime", "1s"),
        ("spark.speculation.quantile", "0.5"),
        # A task that is alone in its stage has nobody to be compared with.
        ("spark.speculation.task.duration.threshold", "3s"),
        ("spark.executor.memory", "512m"),
        ("spark.executorEnv.PYTHONPATH", str(ROOT)),
    )
    return new_session(name, master=_standalone_spark(folder), settings=settings)


def _standalone_spark(folder: str) -> str:
    """Its URL; it dies with this session."""
    from pyspark.find_spark_home import _find_spark_home

    from integration_tests.support.cluster_support import wait_until
    from storage_engine.tools.local.free_ports import is_port_free

    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port = probe.getsockname()[1]
    url = f"spark://{HOSTS[0]}:{port}"
    launcher = str(Path(_find_spark_home()) / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"

    def launch(role: str, host: str, *arguments: str) -> None:
        command = [launcher, f"{deploy}.{role}", "--host", host, "--webui-port", "0", *arguments]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)

    launch("master.Master", HOSTS[0], "--port", str(port))
    wait_until(lambda: not is_port_free(HOSTS[0], port), "Spark's master", timeout_s=START_S)
    for host in HOSTS:
        launch("worker.Worker", host, "--cores", "1", "--memory", "1g", "-d", folder, url)
    return url


def _tell(text: str) -> None:
    print(PREFIX + " ".join(text.split()), flush=True)


def _run(spark: "SparkSession", run: Run) -> str:
    from pyspark.errors import PySparkException

    try:
        _begin(spark, run).awaitTermination()
    except PySparkException as error:
        return f"failed: {error}"
    return "ended"


def _begin(spark: "SparkSession", run: Run) -> "StreamingQuery":
    from integration_tests.exactly_once import avro_cells
    from integration_tests.exactly_once.sink_moments import BROKEN_OPTION, FOLDER_OPTION, FORMAT
    from integration_tests.exactly_once.sink_queries import QUERIES
    from integration_tests.exactly_once.typed_cells import ids_of, typed

    connecting = {} if run.client_file is None else {"client.config.file": run.client_file}
    avro = {} if run.registry is None else avro_cells.options(run.registry)
    has_columns = run.is_typed or run.registry is not None

    def source(topic: str) -> "DataFrame":
        reader = spark.readStream.format("headrace")
        records = (
            reader.option("kafka.bootstrap.servers", run.servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", run.per_batch)
            .option("minPartitions", run.min_partitions)
            .options(**connecting, **avro)
            .load()
        )
        return ids_of(records) if has_columns else records

    frames = [source(topic) for topic in run.sources]
    rows = QUERIES[run.query](frames[0], frames[-1])
    if has_columns:
        rows = typed(rows)
    writer = (
        rows.writeStream.format(FORMAT)
        .option(FOLDER_OPTION, run.folder)
        .option("kafka.bootstrap.servers", run.servers)
        .option("kafka.request.timeout.ms", REQUEST_TIMEOUT_MS)
        .option("topic", run.target)
        .option("sinkId", run.sink_id)
        .option("checkpointLocation", str(Path(run.folder) / "checkpoint"))
    )
    writer = writer.options(**connecting, **avro)
    if run.registry is not None:
        writer = writer.option("value.schema", avro_cells.TARGET)
    if run.broken is not None:
        writer = writer.option(BROKEN_OPTION, run.broken)
    if not run.endless:
        writer = writer.trigger(availableNow=True)
    return writer.start()


# --- the test's side ---


class QueryServer:
    """A running driver."""

    def __init__(self, folder: Path, master: str = LOCAL) -> None:
        self.master = master
        self._log_file = folder / f"{master.partition('[')[0]}.log"
        self._answers: Queue[str] = Queue()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "integration_tests.exactly_once.query_server",
                    master,
                    str(folder),
                ],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # With its JVM and all Python workers, also those in groups of their own.
                start_new_session=True,
            )
        Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, run: Run) -> None:
        """Returns at once; one run at a time. A driver that dies meanwhile is found dead later."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asdict(run)).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float) -> str | None:
        """What it says next: `ready`, `ended` or `failed: …`; None for nothing within the time."""
        try:
            return self._answers.get(timeout=timeout_s)
        except Empty:
            return None

    def python_workers(self) -> list[int]:
        """Process ids of Spark's Python workers and of what else Python runs for the driver."""
        return [
            pid
            for pid, command in _session(self.pid)
            if pid != self.pid and "pyspark" in command and "java" not in command.split()[0]
        ]

    def kill(self) -> None:
        """With SIGKILL, and everything it has started."""
        # Again for what was started meanwhile.
        while left := [pid for pid, command in _session(self.pid) if command != DEAD]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._process.wait()

    def last_words(self) -> str:
        return self._log_file.read_text(errors="replace")[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._log_file.open("ab") as log:
            for line in self._process.stdout:
                text = line.decode(errors="replace")
                if text.startswith(PREFIX):
                    self._answers.put(text.removeprefix(PREFIX).strip())
                else:
                    log.write(line)


class SessionServer:
    """The session of the tests as what runs queries after a driver that was killed: a Spark less to
    start. Nobody kills it."""

    alive = True

    def __init__(self, spark: "SparkSession") -> None:
        from integration_tests.exactly_once.sink_moments import MomentsSource

        self._spark = spark
        spark.dataSource.register(MomentsSource)
        self._query: StreamingQuery | None = None

    def start(self, run: Run) -> None:
        self._query = _begin(self._spark, run)

    def answer(self, timeout_s: float) -> str | None:
        """As of a `QueryServer`."""
        from pyspark.errors import PySparkException

        assert self._query is not None
        try:
            return "ended" if self._query.awaitTermination(timeout_s) else None
        except PySparkException as error:
            return f"failed: {error}"

    def kill(self) -> None:
        if self._query is not None:
            self._query.stop()

    def last_words(self) -> str:
        return "in the session of the tests"


def _session(leader: int) -> Iterator[tuple[int, str]]:
    """(process id, command line) of all processes in its session."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[3]) == leader:
            yield int(entry.name), command or DEAD


if __name__ == "__main__":
    serve(*sys.argv[1:])
