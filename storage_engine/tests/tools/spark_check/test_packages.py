"""PySpark, as it may be installed."""

import importlib.util
import sys
from types import SimpleNamespace

import pyspark
import pytest

from storage_engine.tests.tools.spark_check.programs import SPARK_HOME
from storage_engine.tools.spark_check import packages
from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.packages import check_packages

pytestmark = pytest.mark.usefixtures("bare")


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
