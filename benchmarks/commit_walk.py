"""Which source files a micro-batch's commit walks through, in the task, the driver and the broker,
beyond those that a plain transactional produce walks through as well.

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
from pathlib import Path
from types import FrameType
from typing import Any

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
    print(f"the commit of a micro-batch alone: {len(extra)}")
    for file in extra:
        functions = ", ".join(here["micro-batch"][file])
        print(f"    {file.removeprefix(f'{ROOT}/')}: {functions:.140}")


def _walk(folder: Path) -> dict[str, dict[str, list[str]]]:
    from integration_tests.cluster_support import create_topic, running_cluster

    settings = (("transaction.state.log.num.partitions", "1"),)
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
    time.sleep(1)


def _transaction(servers: str) -> None:
    from storage_engine.client.producer.producer import Producer

    with Producer({"bootstrap.servers": servers, "transactional.id": "walk"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("walk", b"value").result()
        producer.commit_transaction()


def _micro_batch(servers: str) -> None:
    import pyarrow as pa

    from connector.connections import close_all
    from connector.options.sink_options import parse_sink_options
    from connector.sink.micro_batch import MicroBatchId
    from connector.sink.micro_batch_commit import commit_micro_batch
    from connector.sink.task_attempt import write_in_transaction

    options = parse_sink_options({"bootstrap.servers": servers, "topic": "walk"})
    batch = MicroBatchId(sink="walk", query=str(uuid.uuid4()), batch=0)
    rows = pa.record_batch({"value": pa.array(["row"] * 10)})
    written = [write_in_transaction(options, batch, [rows]) for _ in range(2)]
    commit_micro_batch(options, written, 0)
    close_all()


if __name__ == "__main__":
    main()
