"""Which source files a micro-batch walks through from the rows of its tasks to its commit, in task,
driver and broker. Not counted are files that a plain transactional produce or an at-least-once
write of the sink walks through as well, and those of an idle broker.

    python -m benchmarks.commit_walk

A broker of its own process and this process, which is task and driver without Spark around them.
Each function call notes its file (`sys.setprofile`), in the phase that a shared file tells. A phase
begins and ends when the broker has come to rest: it has long called no function for the first time
since the last change of phase.
"""

import json
import mmap
import os
import struct
import sys
import tempfile
import threading
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
REST_CALLS = 500
"""Calls without a function that is new to the phase, after which a broker is at rest: more than it
makes for a transaction, and a few seconds of an idle one."""
REST_TIMEOUT_S = 60.0
PHASE_AT = 0
CALLS = struct.Struct("<QQ")
"""How many calls the broker has made, and which was the last of a function new to its phase."""
CALLS_AT = 8
SHARED_BYTES = CALLS_AT + CALLS.size


def record(is_broker: bool) -> None:
    """Notes the files of this process by phase, and writes them into the folder at the end of
    each."""
    folder = Path(os.environ[FOLDER])
    shared = _shared(folder)
    seen: list[dict[str, set[str]]] = [{} for _ in PHASES]
    since_change: set[tuple[str, str]] = set()
    last = calls = newest = 0

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal last, calls, newest
        if event != "call":
            return
        before, last = last, shared[PHASE_AT]
        if last != before:
            since_change.clear()
            if not last:
                by_phase = {name: _sorted(seen[number]) for number, name in enumerate(PHASES)}
                (folder / f"{os.getpid()}.json").write_text(json.dumps(by_phase))
        name, function = frame.f_code.co_filename, frame.f_code.co_qualname
        if not name.startswith(PRODUCT) or frame.f_code.co_name == "<module>":
            return
        if last:
            seen[last].setdefault(name, set()).add(function)
        calls += 1
        if (name, function) not in since_change:
            since_change.add((name, function))
            newest = calls
        if is_broker:
            CALLS.pack_into(shared, CALLS_AT, calls, newest)

    threading.setprofile(note)
    sys.setprofile(note)


def _shared(folder: Path) -> mmap.mmap:
    with (folder / "shared").open("r+b") as file:
        return mmap.mmap(file.fileno(), SHARED_BYTES)


def _sorted(files: dict[str, set[str]]) -> dict[str, list[str]]:
    return {file: sorted(functions) for file, functions in files.items()}


def main() -> None:
    """Prints both lists."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shared").write_bytes(bytes(SHARED_BYTES))
        (folder / "sitecustomize.py").write_text(
            "import benchmarks.commit_walk\nbenchmarks.commit_walk.record(is_broker=True)\n"
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
    from integration_tests.support.cluster_support import (
        create_topic,
        running_cluster,
        wait_until,
    )

    shared = _shared(folder)

    def until_rest() -> None:
        begun = CALLS.unpack_from(shared, CALLS_AT)[0]

        def rests() -> bool:
            calls, newest = CALLS.unpack_from(shared, CALLS_AT)
            return bool(calls - max(begun, newest) >= REST_CALLS)

        wait_until(rests, "the broker comes to rest", timeout_s=REST_TIMEOUT_S)

    settings = (
        ("transaction.state.log.num.partitions", "1"),
        ("log.cleaner.enable", "false"),
        # What an idle broker does now and then, it does before it is taken to be at rest.
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
        ("replica.high.watermark.checkpoint.interval.ms", "500"),
    )
    with running_cluster(folder / "cluster", brokers=1, settings=settings) as cluster:
        create_topic(cluster, "walk", replication_factor=1)
        servers = cluster.bootstrap_servers
        record(is_broker=False)
        for _ in range(ROUNDS):
            # What is looked up once is looked up before the phase counts.
            for number, work in ((1, _idle), (2, _transaction), (3, _micro_batch)):
                work(servers)
                until_rest()
                shared[PHASE_AT] = number
                work(servers)
                until_rest()
                shared[PHASE_AT] = 0
    found: dict[str, dict[str, list[str]]] = {phase: {} for phase in PHASES}
    for path in folder.glob("*.json"):
        for name, files in json.loads(path.read_text()).items():
            found[name].update(files)
    return found


def _idle(_servers: str) -> None:
    """What a broker does by itself is what it does until it rests."""


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
