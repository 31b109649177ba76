"""Spark's own Kafka connector over SASL_SSL writes, copies as a stream, and reads.

It runs with HEADRACE_FAULTS=full, where `headrace bench beside-kafka` has fetched the connector and
`.venv/versions` has the Spark that it is for.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.beside_kafka.jars import CONNECTOR, SPARK_VERSION, check, read_pinned
from integration_tests.security.clients import spark_connector_job
from integration_tests.security.clients.cells import SCRAM_512, WRONG_SECRET, Cell
from integration_tests.security.clients.clients_cluster import Way, clients_cluster
from integration_tests.support import spark_versions
from storage_engine.client import Admin, NewTopic
from storage_engine.tests.sampling import in_full

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
JARS = CACHE / "beside-kafka" / CONNECTOR.folder
SPARK = SPARK_VERSION.rpartition(".")[0]
LIMIT_S = 500

pytestmark = [
    in_full,
    pytest.mark.skipif(not JARS.is_dir(), reason=f"there is no {JARS}"),
    pytest.mark.skipif(not spark_versions.is_installed(SPARK), reason=f"there is no Spark {SPARK}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with clients_cluster(tmp_path_factory.mktemp("clients")) as made:
        names = (spark_connector_job.SOURCE, spark_connector_job.TARGET)
        with Admin({"bootstrap.servers": made.brokers.bootstrap("OPEN")}) as admin:
            admin.create_topics(
                NewTopic(name=name, partitions=2, replication_factor=1) for name in names
            )
        yield made


def options_of(way: Way) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": way.servers,
        "kafka.security.protocol": way.protocol,
        "kafka.sasl.mechanism": way.mechanism or "",
        "kafka.sasl.jaas.config": (
            f'{module} required username="{way.user}" password="{way.password}";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": way.authority_file,
    }


def test_sparks_own_connector_writes_and_reads_over_sasl_ssl(cluster, tmp_path):
    pinned = read_pinned(CONNECTOR.pinned)
    check(JARS, pinned)
    given = {
        "jars": [str(JARS / name) for name in pinned],
        "options": options_of(cluster.way(Cell(SCRAM_512, asks=False))),
        "wrong": options_of(cluster.way(Cell(SCRAM_512, asks=False, problem=WRONG_SECRET))),
        "folder": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-P", spark_connector_job.__file__, json.dumps(given)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        env=spark_versions.environment(SPARK),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["values"] == spark_connector_job.ROWS
    assert "authentication failed" in told["refused"]
