"""The Python of Spark's workers, where the job's environment was not activated."""

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from connector.workers_python import use_this_python

CHOOSING = ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"]
CHOOSING += ["PYTHON_WORKER_FACTORY_PORT"]


def _python(folder: Path, *names: str) -> Path:
    """A program under the first name, with links to it."""
    folder.mkdir(parents=True)
    first, *others = names
    made = folder / first
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    for name in others:
        (folder / name).symlink_to(made)
    return made


@pytest.fixture
def system(tmp_path, monkeypatch) -> Path:
    """The folder of `python3` of the PATH. No Spark runs in this process."""
    for name in CHOOSING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.core.context", None)
    folder = _python(tmp_path / "usr", "python3", "python3.11").parent
    monkeypatch.setenv("PATH", f"{folder}:/nowhere")
    return folder


def _run_by(monkeypatch, executable: Path, *, environment: bool) -> None:
    monkeypatch.setattr(sys, "executable", str(executable))
    monkeypatch.setattr(sys, "base_prefix", str(executable.parents[1]))
    monkeypatch.setattr(sys, "prefix", "/environment" if environment else sys.base_prefix)


@pytest.fixture
def environment(system, tmp_path, monkeypatch) -> Path:
    """The folder of the Python that runs the job: links to that of the system, as venv makes."""
    folder = tmp_path / "environment"
    folder.mkdir()
    for name in ("python", "python3"):
        (folder / name).symlink_to(system / "python3")
    _run_by(monkeypatch, folder / "python", environment=True)
    return folder


def _first() -> str:
    return os.environ["PATH"].partition(":")[0]


def test_an_environment_that_is_not_activated_is_put_first(environment, system, caplog):
    use_this_python()
    use_this_python()
    assert os.environ["PATH"] == f"{environment}:{system}:/nowhere"
    assert caplog.records == []


@pytest.mark.parametrize("name", CHOOSING)
def test_what_was_chosen_is_not_overruled(environment, system, monkeypatch, name):
    monkeypatch.setenv(name, "7")
    use_this_python()
    assert _first() == str(system)


def test_spark_is_told_nothing_that_would_reach_executors_of_a_cluster(environment):
    use_this_python()
    assert [name for name in CHOOSING if name in os.environ] == []


def test_an_activated_environment_is_left_alone(environment, system, monkeypatch):
    monkeypatch.setenv("PATH", f"{environment}:{system}")
    use_this_python()
    assert os.environ["PATH"] == f"{environment}:{system}"


def test_a_python_in_a_folder_of_its_own_is_put_first(system, tmp_path, monkeypatch):
    own = _python(tmp_path / "conda", "python3.12", "python3")
    _run_by(monkeypatch, own, environment=False)
    use_this_python()
    assert _first() == str(own.parent)


def test_the_order_of_shared_folders_stays_and_a_line_says_what_to_set(
    system, tmp_path, monkeypatch, caplog
):
    other = _python(tmp_path / "local", "python3.12", "python3")
    monkeypatch.setenv("PATH", f"{system}:{other.parent}")
    _run_by(monkeypatch, other, environment=False)
    use_this_python()
    assert _first() == str(system)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"Spark's workers will be python3 of the PATH ({system}/python3), not {other}: where Spark "
        f"does not find the format, set PYSPARK_PYTHON={other} before the session is built"
    )


def test_another_name_of_the_same_python_is_as_good(system, monkeypatch, caplog):
    _run_by(monkeypatch, system / "python3.11", environment=False)
    use_this_python()
    assert _first() == str(system)
    assert caplog.records == []


def test_where_spark_runs_already_a_line_says_what_to_do(environment, system, monkeypatch, caplog):
    running = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=object()))
    monkeypatch.setitem(sys.modules, "pyspark.core.context", running)
    use_this_python()
    assert _first() == str(system)
    (record,) = caplog.records
    assert "call connector.register(spark), or import connector" in record.getMessage()
