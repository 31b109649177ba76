"""Every example is run, against a broker of its own. Source: R-SPARK5."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame

from integration_tests.conftest import servers, topic
from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.spark_support import consume, produce
from integration_tests.support.spark_versions import python_path
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TOPIC
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.local.local_cluster import LocalCluster

__all__ = ["servers", "topic"]

ROOT = Path(__file__).parents[3]
USAGE = ROOT / "examples" / "usage"
PACKAGES = ("connector", "storage_engine", "pyspark_headrace")
SPARK_HOME = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))
PACKED_JOB = Path(__file__).with_name("packed_job.py")
TEN_TWICE = sorted([*range(10), *range(10)])
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (("transaction.state.log.num.partitions", "2"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


@pytest.fixture
def orders(spark_cluster, servers, topic) -> str:
    """Three orders of two customers, as key and amount."""
    for name in (topic, f"{topic}-target", f"{topic}-all", f"{topic}-all-copy"):
        create_topic(spark_cluster, name, replication_factor=1)
    amounts = [("anna", 12), ("bert", 7), ("anna", 30)]
    produce(servers, topic, ({"key": key, "value": str(value)} for key, value in amounts))
    return str(topic)


def run(command: list[Any], *, folder: Path = Path("/"), **environment: str) -> str:
    """Its output; AssertionError with what it said when it fails. Nothing of Spark is inherited but
    what the tests say of its JVM."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if "SPARK" not in name or name == "SPARK_SUBMIT_OPTS"
    }
    done = subprocess.run(
        [str(each) for each in command],
        cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
    assert done.returncode == 0, "\n".join([done.stdout[-2000:], *errors])
    return done.stdout


def submit(*arguments: Any, folder: Path = Path("/"), **environment: str) -> None:
    configuration = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    configuration += ["--conf", "spark.sql.shuffle.partitions=1"]
    command = [SPARK_HOME / "bin" / "spark-submit", *configuration, *arguments]
    run(command, folder=folder, SPARK_HOME=str(SPARK_HOME), **environment)


def copied(servers: str, topic: str) -> list[int]:
    """What the packed job has copied."""
    return sorted(int(each.value() or b"") for each in consume(servers, f"{topic}-all-copy"))


def totals(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((each.key(), each.value()) for each in consume(servers, f"{topic}-target"))


def test_the_job_for_spark_submit(spark, servers, orders, monkeypatch):
    """In the session of the tests, which it would stop; in full with `spark-submit`."""
    job = USAGE / "submit_totals.py"
    monkeypatch.setattr(sys, "argv", [str(job), servers, orders, f"{orders}-target", "20260401"])
    monkeypatch.setattr(type(spark), "stop", lambda _session: None)
    runpy.run_path(str(job), run_name="__main__")
    assert totals(servers, orders) == [(b"anna", b"42"), (b"bert", b"7")]


@in_full
def test_spark_submit_with_the_package_installed(servers, orders):
    job = [USAGE / "submit_totals.py", servers, orders, f"{orders}-target"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path(ROOT)}
    submit(*job, 20260401, **python)
    assert totals(servers, orders) == [(b"anna", b"42"), (b"bert", b"7")]


def packed(archive: Path) -> Path:
    """Our packages, as `--py-files` takes them."""
    with zipfile.ZipFile(archive, "w") as made:
        for package in PACKAGES:
            for file in sorted((ROOT / package).rglob("*.py")):
                if "tests" not in file.parts:
                    made.write(file, file.relative_to(ROOT))
    return archive


@in_full
def test_spark_submit_with_py_files(servers, orders, tmp_path):
    archive = packed(tmp_path / "headrace.zip")
    # A Python that has all packages but ours: without site, nothing that is installed editable.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    python = {"PYSPARK_PYTHON": str(bare), "PYTHONPATH": python_path(sysconfig.get_path("purelib"))}
    with pytest.raises(AssertionError, match="No module named 'connector'"):
        run([bare, "-c", "import pyspark, connector"], **python)
    job = [USAGE / "submit_totals.py", servers, orders, f"{orders}-target"]
    submit("--py-files", archive, *job, 20260402, **python)
    assert totals(servers, orders) == [(b"anna", b"42"), (b"bert", b"7")]
    submit("--py-files", archive, PACKED_JOB, servers, f"{orders}-all", tmp_path, **python)
    assert copied(servers, orders) == TEN_TWICE


@in_full
def test_spark_submit_with_an_environment_in_an_archive(servers, orders, tmp_path):
    """As Spark's documents have it; executors that unpack it, and a driver beside which it is."""
    environment = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    (packages,) = environment.glob("lib/python*/site-packages")
    path = python_path(ROOT, sysconfig.get_path("purelib"))
    (packages / "all.pth").write_text(path.replace(os.pathsep, "\n"))
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", environment)
    python = {"PYSPARK_PYTHON": "./environment/bin/python"}
    python["PYSPARK_DRIVER_PYTHON"] = str(environment / "bin" / "python")
    master = ["--master", "local-cluster[1,1,1024]", "--archives", f"{archive}#environment"]
    job = [PACKED_JOB, servers, f"{orders}-all", tmp_path]
    submit(*master, *job, folder=tmp_path, **python)
    assert copied(servers, orders) == TEN_TWICE


class Widgets:
    """Stands for dbutils.widgets, as a job sets them."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def text(self, name: str, default: str) -> None:
        self._values.setdefault(name, default)

    def get(self, name: str) -> str:
        return self._values[name]


class Utilities:
    def __init__(self, widgets: Widgets) -> None:
        self.widgets = widgets


def test_a_notebook_in_the_source_form_of_databricks(
    spark, spark_cluster, servers, topic, tmp_path, capsys
):
    for name in (topic, f"{topic}-checked", f"{topic}-rejected"):
        create_topic(spark_cluster, name, replication_factor=1)
    texts = ['{"item":"tea","amount":2}', "{}", '{"item":"tea","amount":3}', '{"item":"ink"}', "no"]
    produce(servers, topic, ({"value": text, "headers": [("own", b"h")]} for text in texts))
    shown: list[DataFrame] = []

    def run_notebook() -> None:
        widgets = Widgets(servers=servers, topic=topic, checkpoint=str(tmp_path / "checkpoint"))
        given = {"spark": spark, "dbutils": Utilities(widgets), "display": shown.append}
        runpy.run_path(str(USAGE / "notebook_orders.py"), init_globals=given)

    run_notebook()
    assert [tuple(row) for row in shown[0].collect()] == [("tea", 5.0)]
    rejected = consume(servers, f"{topic}-rejected")
    origins = [dict(each.headers() or ()) for each in rejected]
    assert [
        (each.value(), o[OFFSET], o[REASON]) for each, o in zip(rejected, origins, strict=True)
    ] == [
        (b"{}", b"1", b"no item"),
        (b'{"item":"ink"}', b"3", b"no amount"),
        (b"no", b"4", b"no item"),
    ]
    assert all((o["own"], o[TOPIC], o[PARTITION]) == (b"h", topic.encode(), b"0") for o in origins)

    # Sent back, two of them are rejected again: with the reason and origin of this time, once.
    command = ["replay-dead-letters", f"{topic}-rejected", "--bootstrap-server", servers]
    assert main([*command, "--reason", "no item", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 2
    run_notebook()
    again = [each for each in consume(servers, f"{topic}-rejected") if (each.offset() or 0) > 3]
    known = [
        [pair for pair in each.headers() or () if pair[0] in (OFFSET, REASON)] for each in again
    ]
    assert sorted(known)[-2:] == [
        [(OFFSET, b"5"), (REASON, b"no item")],
        [(OFFSET, b"6"), (REASON, b"no item")],
    ]


@pytest.fixture
def connect_server(spark) -> Iterator[str]:
    """The session of the tests as a server of Spark Connect, on a port of its own."""
    port = find_free_port("127.0.0.1")
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    server = spark._jvm.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    server.init(context, None)
    yield f"sc://127.0.0.1:{port}"
    server.shutdown()


def copy_over_spark_connect(remote: str, servers: str, orders: str) -> None:
    pytest.importorskip("grpc_status", reason="the extra 'connect' is not installed")
    job = [sys.executable, USAGE / "connect_copy.py", remote, servers, orders]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path(ROOT)}
    # Of the tests: its server starts at a third of the cost.
    said = run([*job, f"{orders}-target"], SPARK_HOME=str(SPARK_HOME), **python)
    assert "pyspark.sql.connect" in said and "3 records read" in said
    assert totals(servers, orders) == [(b"anna", b"12"), (b"anna", b"30"), (b"bert", b"7")]


def test_spark_connect(connect_server, servers, orders):
    copy_over_spark_connect(connect_server, servers, orders)


@in_full
def test_spark_connect_with_a_server_in_this_machine(servers, orders):
    copy_over_spark_connect("local[1]", servers, orders)
