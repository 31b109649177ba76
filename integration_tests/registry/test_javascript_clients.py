"""JavaScript's clients of registries, unmodified, at ours: KafkaJS's and Confluent's. Records that
they write are read as columns."""

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration_tests.registry.registries import RegistryUnderFire
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.protocol.avro.decode import decode
from storage_engine.protocol.avro.framing import cut
from storage_engine.tests.sampling import in_full

PROGRAM = Path(__file__).with_name("javascript_clients.cjs")
PACKAGES = ("@kafkajs/confluent-schema-registry@3.9.0", "@confluentinc/schemaregistry@1.10.1")
INSTALL_S, RUN_S = 900, 120
ROWS = [{"id": 1, "fare": None, "tags": []}, {"id": 2, "fare": 2.5, "tags": ["a", "ü"]}]
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Ride",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "fare", "type": ["null", "double"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)

pytestmark = [
    in_full,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def told(cluster, tmp_path_factory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("javascript")
    (folder / "package.json").write_text('{"private": true}')
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=INSTALL_S)
    shutil.copy(PROGRAM, folder)
    topic = f"js-{uuid.uuid4().hex[:8]}"
    registry = RegistryUnderFire(cluster, folder, f"_schemas-{topic}")
    try:
        registry.start()
        done = subprocess.run(
            ["node", PROGRAM.name, registry.url, topic],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)
    finally:
        registry.kill()


@pytest.mark.parametrize("client", ["kafkajs", "confluent"])
def test_records_are_read_by_the_client_that_wrote_them_and_as_columns(told, client) -> None:
    assert told[client]["read"] == ROWS
    written = [base64.b64decode(each) for each in told[client]["written"]]
    framed = cut(pa.array(written, pa.binary()))
    schema_id = told["kafkajs"]["ids"]["id"]
    assert framed.ids.tolist() == [schema_id, schema_id]
    found = decode(parse_avro_schema(SCHEMA), framed.bodies((framed.ids >= 0).nonzero()[0]))
    assert (found.damaged, found.batch.to_pylist()) == ((), ROWS)


def test_kafkajs_registers_finds_and_is_refused(told) -> None:
    found = told["kafkajs"]
    ids = found["ids"]
    assert (ids["latest"], ids["found"]) == (ids["again"], ids["id"])
    assert ids["again"] > ids["id"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found["refused"]
    assert found["others"] == {"JSON": {"id": 3}, "PROTOBUF": {"id": "4", "name": "ü"}}


def test_confluents_client_registers_asks_sets_and_deletes(told) -> None:
    found = told["confluent"]
    assert found["id"] == found["latest"] == told["kafkajs"]["ids"]["id"]
    assert (found["versions"], found["compatible"], found["level"]) == ([1], True, "FULL")
    assert found["document"] == {"id": 3}
    assert found["deleted"] is True
