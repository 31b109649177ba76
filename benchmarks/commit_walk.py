"""Which source files a micro-batch walks through from the rows of its tasks to its commit, in task,
driver and broker. Not counted are files that a plain transactional produce or an at-least-once
write of the sink walks through as well, and those of an idle broker.

    python -m benchmarks.commit_walk

A broker of its own process and this process, which is task and driver without Spark around them.
Each function call notes its file (`sys.setprofile`), in the phase that a shared byte tells.
"""

import json
import mmap
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = tuple(f"{ROOT / name}/" for name in ("storage_engine", "connector"))
FOLDER = "HEADRACE_COMMIT_WALK"
PHASES = ("nothing", "idle", "transaction", "micro-batch")
ROUNDS = 3


def record() -> None:
    """Notes the files of this process by phase, and writes them into the folder at its end."""
    folder = Path(os.environ[FOLDER])
    with (folder / "phase").open("rb") as file:
        phase = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
    seen: list[dict[str, set[str]]] = [{} for _ in PHASES]
    last = 0

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal last
        if event != "call":
            return
        before, last = last, phase[0]
        if last:
            name = frame.f_code.co_filename
            if name.startswith(PRODUCT) and frame.f_code.co_name != "<module>":
                seen[last].setdefault(name, set()).add(frame.f_code.co_qualname)
        elif before:
            by_phase = {name: _sorted(seen[number]) for number, name in enumerate(PHASES)}
            (folder / f"{os.getpid()}.json").write_text(json.dumps(by_phase))

    threading.setprofile(note)
    sys.setprofile(note)


def _sorted(files: dict[str, set[str]]) -> dict[str, list[str]]:
    return {file: sorted(functions) for file, functions in files.items()}


def main() -> None:
    """Prints both lists."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "phase").write_bytes(b"\0")
        (folder / "sitecustomize.py").write_text(
            "import benchmarks.commit_walk\nbenchmarks.commit_walk.record()\n"
        )
        os.environ[FOLDER] = name
        os.environ["PYTHONPATH"] = f"{name}:{ROOT}"
        broker = _walk(folder)
        here = {phase: broker[phase] for phase in PHASES}
    for phase in PHASES[1:]:
        print(f"{phase}: {len(here[phase])} files")
    extra = sorted(set(here["micro-batch"]) - set(here["transaction"]) - set(here["idle"]))
    print(f"the micro-batch alone: {len(extra)}")
    for file in extra:
        functions = ", ".join(here["micro-batch"][file])
        print(f"    {file.removeprefix(f'{ROOT}/')}: {functions:.140}")


def _walk(folder: Path) -> dict[str, dict[str, list[str]]]:
    from integration_tests.support.cluster_support import create_topic, running_cluster

    settings = (
        ("transaction.state.log.num.partitions", "1"),
        ("log.cleaner.enable", "false"),
    )
    with running_cluster(folder / "cluster", brokers=1, settings=settings) as cluster:
        create_topic(cluster, "walk", replication_factor=1)
        servers = cluster.bootstrap_servers
        record()
        with (folder / "phase").open("r+b") as file:
            phase = mmap.mmap(file.fileno(), 1)
        for _ in range(ROUNDS):
            # What is looked up once is looked up before the phase counts.
            for number, work in ((1, _idle), (2, _transaction), (3, _micro_batch)):
                work(servers)
                phase[0] = number
                work(servers)
                time.sleep(0.5)
                phase[0] = 0
    found: dict[str, dict[str, list[str]]] = {phase: {} for phase in PHASES}
    for path in folder.glob("*.json"):
        for name, files in json.loads(path.read_text()).items():
            found[name].update(files)
    return found


def _idle(servers: str) -> None:
    time.sleep(5)


def _transaction(servers: str) -> None:
    """A plain transactional produce, and rows that the sink writes at least once."""
    from connector.sink.stream_writer import HeadraceStreamWriter
    from storage_engine.client.producer.producer import Producer

    with Producer({"bootstrap.servers": servers, "transactional.id": "walk"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("walk", b"value").result()
        producer.commit_transaction()
    writer = HeadraceStreamWriter(_options(servers, deliveryGuarantee="at-least-once"))
    writer.commit([writer.write(_rows()) for _ in range(2)], 0)


def _micro_batch(servers: str) -> None:
    import pyspark

    from connector.sink.stream_writer import HeadraceStreamWriter

    pyspark.TaskContext = _Task  # type: ignore[assignment, misc]
    _Task.properties = {"sql.streaming.queryId": str(uuid.uuid4()), "streaming.sql.batchId": "0"}
    writer = HeadraceStreamWriter(_options(servers))
    writer.commit([writer.write(_rows()) for _ in range(2)], 0)


class _Task:
    """Stands for Spark's TaskContext."""

    properties: ClassVar[dict[str, str]] = {}

    @classmethod
    def get(cls) -> "_Task":
        return cls()

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


@cache
def _options(servers: str, **options: str) -> Any:
    """Cached, because Spark parses options when it plans a query."""
    from connector.options.sink_options import parse_sink_options

    return parse_sink_options({"bootstrap.servers": servers, "topic": "walk"} | options)


def _rows() -> Iterator[Any]:
    import pyarrow as pa

    return iter([pa.record_batch({"value": pa.array(["row"] * 10)})])


if __name__ == "__main__":
    main()
