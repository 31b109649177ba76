"""A registry with many schemas: how long it takes to start, and to answer one of them.

Rule: its records are those that a registry has written, as in a `_schemas` that was copied from
elsewhere: to register ten thousand would take minutes.
"""

import contextlib
import http.client
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from benchmarks.avro.rides import ride_schema
from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.beside_kafka.topics import REPLICAS
from benchmarks.support.brokers import HOST, free_ports
from benchmarks.support.rounds import percentile
from storage_engine.client import Producer
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.core.schemas.registry.records import (
    HIGHEST_ID_KEY,
    KeyType,
    RecordKey,
    StoredSchema,
    encode_json,
)
from storage_engine.tools.errors import CommandError

TOPIC = "_schemas"
_VERSIONS = 4
"""The versions of each subject."""
_START_S = 60
_POLL_S = 0.01
_PERCENT = 99


@dataclass(frozen=True, slots=True)
class RunningRegistry:
    """A registry that serves."""

    url: str
    pid: int
    start_s: float
    """How long it took from its start until it had read all schemas."""

    @property
    def cpu_s(self) -> float:
        """Its processor time since its start."""
        return seconds_of([self.pid])


def fill_schemas(servers: str, count: int) -> dict[int, str]:
    """Create `_schemas` with so many schemas, all different, and return their texts by their
    ids."""
    text = ride_schema().text
    texts = {
        number: text.replace("topLevelRecord", f"Ride{number}") for number in range(1, count + 1)
    }
    records = [(HIGHEST_ID_KEY, encode_json({"highestId": count}))]
    for number, each in texts.items():
        place, version = divmod(number - 1, _VERSIONS)
        subject = f"rides-{place:05}-value"
        stored = StoredSchema(
            subject=subject,
            version=version + 1,
            id=number,
            schema=Schema(schema_type=SchemaType.AVRO, text=each),
            foreign={},
        )
        records.append((RecordKey(KeyType.SCHEMA, subject, version + 1).encode(), stored.encode()))
    with Cluster(servers) as cluster:
        create_topic(cluster, TOPIC, 1, REPLICAS, {"cleanup.policy": "compact"})
    keys, values = zip(*records, strict=True)
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send_table(TOPIC, table)
        producer.flush()
    return texts


@contextlib.contextmanager
def running_registry(servers: str, folder: Path) -> Iterator[RunningRegistry]:
    """Run a registry within the block."""
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    log = folder / f"registry-{port}.log"
    command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "registry"]
    command += ["--bootstrap-server", servers, "--listen", address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    with tethered(command, log=log, folder=folder, environment=environment) as process:
        while not _is_ready(address):
            check_runs(process, "the registry", log)
            if time.monotonic() > started + _START_S:
                raise CommandError(f"the registry is not up after {_START_S} s, see {log}")
            time.sleep(_POLL_S)
        yield RunningRegistry(f"http://{address}", process.pid, time.monotonic() - started)


def read_p99_ms(url: str, texts: Mapping[int, str]) -> float:
    """Return the milliseconds within which 99 of 100 schemas come by their ids, each once in an
    order by chance. CommandError for an answer that is another schema."""
    ids = list(texts)
    random.Random(0).shuffle(ids)
    times: list[float] = []
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        for each in ids:
            started = time.perf_counter()
            connection.request("GET", f"/schemas/ids/{each}")
            answer = connection.getresponse().read()
            times.append((time.perf_counter() - started) * 1000)
            if json.loads(answer).get("schema") != texts[each]:
                raise CommandError(f"the registry does not answer the schema of the id {each}")
    return percentile(times, _PERCENT)


def _is_ready(address: str) -> bool:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=5)) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
