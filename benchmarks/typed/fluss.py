"""Apache Fluss with its ZooKeeper, three tablet servers and its own Python client, as child
processes in a folder.

Rule: Fluss as it is shipped: its own settings except for ports, folders and replication. Its client
runs in an environment of its own, and gets its jobs line by line.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired

from benchmarks.beside_kafka.clusters import BROKERS
from benchmarks.beside_kafka.environment import ROOT, environment_with
from benchmarks.beside_kafka.jars import JarSet, fetch_jars
from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.beside_kafka.told import Told, ToldProcess
from benchmarks.support.brokers import HOST, free_ports
from benchmarks.typed.rows import Measured
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.embedded import start_embedded
from storage_engine.zookeeper.server.java import find_java

if TYPE_CHECKING:
    import subprocess

FLUSS_VERSION = "0.9.1-incubating"
CLIENT_VERSION = "1.0.0"

FLUSS = JarSet(
    name=f"Apache Fluss {FLUSS_VERSION}",
    folder=f"fluss-{FLUSS_VERSION}",
    pinned=Path(__file__).parent / "fluss_jars.sha256",
    dependencies=(("org.apache.fluss", "fluss-server", FLUSS_VERSION),),
)

_COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET = "org.apache.fluss.server.tablet.TabletServer"
_JVM = ("-Xmx1G", "-Xms1G", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-XX:-UsePerfData")
"""The heap of Kafka's brokers; Arrow needs --add-opens."""
_WORKER = "benchmarks.typed.fluss_worker"
_START_S = 60.0
_POLL_S = 0.2
_ANSWER_S = 300
_READ_S = 120


class FlussJob(Told):
    """A job for the client of Fluss; one that fills a table has none of the last two fields."""

    table: str
    buckets: int
    columns: NotRequired[list[str]]
    timeout_s: NotRequired[float]


class FlussClient(ToldProcess):
    """The Python client of Fluss, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path, pids: Sequence[int]) -> None:
        super().__init__("the client of Apache Fluss", process, log, _ANSWER_S)
        self._server_pids = pids

    def fill(self, table: str, buckets: int, rows: int) -> None:
        """Create a table, and fill it with the rows that the others have."""
        job: FlussJob = {"kind": "fill", "table": table, "buckets": buckets, "rows": rows}
        self.do(job)

    def read(self, table: str, buckets: int, rows: int, columns: Sequence[str]) -> Measured:
        """Read all rows, with these columns."""
        job: FlussJob = {"kind": "read", "table": table, "buckets": buckets, "rows": rows}
        servers, own = seconds_of(self._server_pids), seconds_of([self.pid])
        job |= {"columns": list(columns), "timeout_s": _READ_S}
        answer = self.do(job)
        return Measured(
            rows=answer["rows"],
            time_s=answer["time_s"],
            brokers_s=seconds_of(self._server_pids) - servers,
            reader_s=seconds_of([self.pid]) - own,
        )


@contextlib.contextmanager
def running_fluss(folder: Path, cache: Path) -> Iterator[FlussClient]:
    """Run a cluster and a client within the block."""
    jars = fetch_jars(cache, FLUSS)
    wanted = [f"pyfluss=={CLIENT_VERSION}", "pyarrow", "numpy"]
    python = environment_with(cache, f"pyfluss-{CLIENT_VERSION}", wanted, "about 150 MB")
    report_line("starting Apache Fluss")
    home = folder / "fluss"
    home.mkdir()
    ports = free_ports(1 + BROKERS)
    zookeeper = start_embedded(home / "zookeeper")
    with contextlib.ExitStack() as stack:
        stack.callback(zookeeper.stop)
        java = [str(find_java()), *_JVM, f"-Djava.io.tmpdir={home}"]
        java += ["-cp", ":".join(map(str, jars))]
        started = []
        for number, port in enumerate(ports):
            own = _written_settings(home, number, port, zookeeper.connect)
            command = [*java, _TABLET if number else _COORDINATOR, "--configDir", str(own)]
            log = own / "server.log"
            started.append((stack.enter_context(tethered(command, log=log, folder=own)), log))
        log = home / "client.log"
        command = [str(python), "-m", _WORKER, "--servers", f"{HOST}:{ports[0]}"]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        pids = [process.pid for process, _ in started]
        deadline = time.monotonic() + _START_S
        while True:
            for process, own_log in started:
                check_runs(process, "a server of Apache Fluss", own_log)
            try:
                client = FlussClient(
                    stack.enter_context(
                        tethered(command, log=log, folder=home, environment=environment, talks=True)
                    ),
                    log,
                    pids,
                )
                client.answer(deadline - time.monotonic())
                break
            except CommandError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
        yield client


def _written_settings(home: Path, number: int, port: int, zookeeper: str) -> Path:
    """Write the settings of a server into its folder, and return that. 0 is the coordinator."""
    own = home / f"server-{number}"
    own.mkdir()
    settings = {
        "zookeeper.address": zookeeper,
        "bind.listeners": f"FLUSS://{HOST}:{port}",
        "remote.data.dir": str(home / "remote"),
        "default.replication.factor": str(BROKERS),
        "log.replica.min-in-sync-replicas-number": "2",
    }
    if number:
        settings |= {"tablet-server.id": str(number), "data.dir": str(own / "data")}
    lines = "".join(f"{name}: {text}\n" for name, text in settings.items())
    (own / "server.yaml").write_text(lines)
    return own
