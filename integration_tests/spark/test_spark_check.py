"""`headrace spark-check` with a real session: by default that of the tests, in full one of its
own."""

import json
import runpy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from integration_tests.support.spark_versions import python_path
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.cli import main
from storage_engine.tools.spark_check import session

GOOD = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def _check(capsys, *arguments):
    # A busy machine takes minutes to start Spark.
    command = ["spark-check", "--json", "--master", "local[1]", "--timeout", "300"]
    status = main([*command, *arguments])
    document = json.loads(capsys.readouterr().out)
    return status, {each["check"]: each for each in document["checks"]}


@pytest.fixture
def in_tests_session(request, monkeypatch):
    """The program that builds a session finds that of the tests, unless all is run: what it sets
    there is taken back."""
    if ALL_FAULTS:
        yield
        return
    spark = request.getfixturevalue("spark")
    monkeypatch.setattr(type(spark), "stop", lambda _session: None)
    before = {name: spark.conf.get(name, None) for name in (*GOOD, "spark.app.name")}

    class InThisProcess:
        """Stands for a process."""

        def __init__(self, command: list[Any], **_: Any) -> None:
            executable, path, program, *arguments = command
            assert (executable, path) == (sys.executable, "-P")
            monkeypatch.setattr(sys, "argv", [str(each) for each in (program, *arguments)])
            runpy.run_path(str(program), run_name="__main__")

        def communicate(self, timeout: float) -> tuple[str, None]:
            return "", None

        def poll(self) -> int:
            return 0

    others = SimpleNamespace(**vars(subprocess) | {"Popen": InThisProcess})
    monkeypatch.setattr(session, "subprocess", others)
    yield
    for name, value in before.items():
        if not spark.conf.isModifiable(name):
            continue
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.mark.usefixtures("in_tests_session")
def test_an_environment_that_is_in_order_is_ready(capsys, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    settings = [f"--conf={name}={value}" for name, value in GOOD.items()]
    status, found = _check(capsys, *settings)
    assert {name: each for name, each in found.items() if each["verdict"] != "ok"} == {}
    assert status == 0
    assert found["pyspark"]["found"] == pyspark.__version__
    assert found["task"]["found"] == f"runs in {sys.executable}"
    assert found["spark.sql.shuffle.partitions"]["found"] == "1"


@in_full
def test_an_environment_that_is_not_activated_is_told_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -P "$@"')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    status, found = _check(capsys)
    assert status == 1
    assert "write 'import connector' in the job" in found["Python of the workers"]["remedy"]
    assert found['format("headrace")']["found"] == "not found"
    # Those that this version of Spark has.
    assert {found[name]["verdict"] for name in GOOD.keys() & found.keys()} == {"advice"}
