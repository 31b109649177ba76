"""Java, PySpark and the Python of the workers, as a machine may have them."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from storage_engine.tools.spark_check import packages
from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.java import check_java
from storage_engine.tools.spark_check.packages import check_packages
from storage_engine.tools.spark_check.workers import check_workers

SPARK_HOME = Path(pyspark.__file__).parent


def _program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _java(folder: Path, version: str) -> Path:
    return _program(folder / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """No Java, no `python3`, nothing chosen."""
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def test_no_java_is_to_be_installed():
    found = check_java()
    assert (found.found, found.verdict) == ("none", CheckVerdict.TO_DO)
    assert found.remedy == (
        "install a JRE of version 17 or newer, so that the PATH has 'java', or set JAVA_HOME to one"
    )


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("1.8.0_392", "to do"), ("11.0.2", "to do"), ("17.0.15", "ok"), ("21", "ok")],
)
def test_a_java_must_be_new_enough(monkeypatch, tmp_path, version, verdict):
    java = _java(tmp_path / "jre", version)
    monkeypatch.setenv("PATH", f"{java.parent}:/bin")
    assert check_java().verdict == verdict


def test_a_java_home_without_java_is_named_though_the_path_has_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{_java(tmp_path / 'jre', '17').parent}:/bin")
    monkeypatch.setenv("JAVA_HOME", "/opt/gone")
    found = check_java()
    assert (found.found, found.verdict) == ("JAVA_HOME=/opt/gone", CheckVerdict.TO_DO)
    assert found.remedy.startswith("there is no program /opt/gone/bin/java, and Spark does not")


def _found(name, *, needs_spark=True):
    findings = check_packages(needs_spark=needs_spark).findings
    (found,) = (each for each in findings if each.check == name)
    return found


def test_pyspark_that_is_missing_is_to_be_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    checked = check_packages(needs_spark=True)
    assert checked.pyspark is None
    found = checked.findings[-1]
    assert (found.found, found.verdict) == ("not installed", CheckVerdict.TO_DO)
    assert found.remedy == f"run {sys.executable} -m pip install pyspark"


def test_a_client_of_spark_connect_needs_a_server(monkeypatch, tmp_path):
    origin = SimpleNamespace(origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: origin)
    checked = check_packages(needs_spark=True)
    assert checked.spark_home is None
    found = checked.findings[-1]
    assert found.found == f"{pyspark.__version__}, a client of Spark Connect only"
    assert "--remote sc://HOST:PORT" in found.remedy
    assert _found("pyspark", needs_spark=False).verdict is CheckVerdict.OK


def test_a_spark_home_without_spark_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    found = _found("pyspark")
    assert found.verdict is CheckVerdict.TO_DO
    assert found.remedy == (
        f"there is no Spark in {tmp_path} (no bin/spark-submit): unset SPARK_HOME to use PySpark's"
    )


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("3.5.4", "to do"), ("4.0.1", "ok"), ("4.3.0", "ok"), ("5.0.0", "to do")],
)
def test_pyspark_must_be_of_version_4(version, verdict):
    assert packages._check_pyspark(version, SPARK_HOME, has_spark=True).verdict == verdict


def _python3(tmp_path: Path, text: str) -> None:
    _program(tmp_path / "path" / "python3", text)


def test_python3_of_the_path_that_is_this_python_will_do(tmp_path):
    _python3(tmp_path, f'exec "{sys.executable}" "$@"')
    found = check_workers(SPARK_HOME)
    version = ".".join(map(str, sys.version_info[:3]))
    assert found.verdict is CheckVerdict.OK
    assert found.found == f"{version}, {sys.executable} by 'python3' of the PATH"


def test_a_python_without_the_package_is_told_with_three_remedies(tmp_path, monkeypatch):
    # Without site-packages, and away from the clone.
    _python3(tmp_path, f'exec "{sys.executable}" -S -P "$@"')
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = check_workers(SPARK_HOME)
    assert found.verdict is CheckVerdict.TO_DO
    assert found.remedy == (
        "it does not have all that the format needs (ModuleNotFoundError: No module named "
        "'pyarrow'): write 'import connector' in the job before the session is built, or activate "
        f"the environment, or set PYSPARK_PYTHON={sys.executable}"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('echo \'{"version": "3.8.1", "executable": "/p"}\'', "Spark wants one minor version of"),
        (
            f'echo \'{{"version": "{sys.version_info[0]}.{sys.version_info[1]}.0", '
            '"executable": "/p", "headrace": "0.0.1"}\'',
            "its headrace is 0.0.1, and this one ",
        ),
        (
            "echo usage: jupyter >&2; exit 2",
            "it does not run Python's programs: set PYSPARK_PYTHON",
        ),
    ],
)
def test_a_chosen_python_that_does_not_fit_is_told(tmp_path, monkeypatch, text, complaint):
    chosen = _program(tmp_path / "chosen", text)
    monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    found = check_workers(SPARK_HOME)
    assert found.verdict is CheckVerdict.TO_DO
    assert f"PYSPARK_PYTHON={chosen}" in found.found
    assert found.remedy.startswith(complaint)


def test_a_drivers_python_that_is_no_python_also_starts_the_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(_program(tmp_path / "jupyter", "exit 2")))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = check_workers(SPARK_HOME)
    assert found.remedy == (
        "it does not run Python's programs, and Spark starts its workers by this variable, too: "
        f"unset PYSPARK_DRIVER_PYTHON, and set PYSPARK_PYTHON={sys.executable}"
    )


def test_a_chosen_python_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/gone/python")
    found = check_workers(SPARK_HOME)
    assert found.found == "PYSPARK_PYTHON=/opt/gone/python: not found"
    assert found.remedy.startswith(f"there is no such program: set PYSPARK_PYTHON={sys.executable}")
