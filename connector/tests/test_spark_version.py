"""Which versions of Spark the format takes, and what it says to others."""

import logging
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.errors import AnalysisException

from connector import log_once, register, spark_version
from connector.data_source import HeadraceDataSource
from connector.errors import ConnectorError

TOO_OLD = r"^\[SPARK_TOO_OLD\] this is PySpark 3\.5\.6, [^\n]* 4\.0 or newer [^\n]*$"


def test_an_older_spark_is_refused_in_one_line_also_before_its_api_is_imported(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "3.5.6")
    with pytest.raises(ConnectorError, match=TOO_OLD):
        register(None)
    with pytest.raises(ConnectorError, match=TOO_OLD):
        HeadraceDataSource({})


@pytest.mark.parametrize("version", ["4.4.0", "4.10.0.dev1", "5.0.0"])
def test_a_newer_spark_than_was_tested_is_logged_once(monkeypatch, caplog, version):
    monkeypatch.setattr(log_once, "_logged", set())
    monkeypatch.setattr(pyspark, "__version__", version)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            spark_version.check_spark_version()
    (record,) = caplog.records
    assert record.message.startswith(f"this is PySpark {version}; ")


@pytest.mark.parametrize("version", ["4.0.0", "4.1.2", "4.2.0.dev3", "4.3.7", "4.3.0+vendor.1"])
def test_a_tested_version_is_taken_silently(monkeypatch, caplog, version):
    monkeypatch.setattr(pyspark, "__version__", version)
    with caplog.at_level(logging.WARNING):
        spark_version.check_spark_version()
    assert caplog.records == []


class Refused(AnalysisException):
    def __init__(self, condition: str) -> None:
        super().__init__("refused")
        self._condition = condition

    def getCondition(self) -> str:
        return self._condition


def refusing(condition: str) -> SimpleNamespace:
    """A session that registers nothing."""

    def refuse(_: type) -> None:
        raise Refused(condition)

    context = SimpleNamespace(master="yarn", pythonExec="python3", _python_includes=[])
    return SimpleNamespace(sparkContext=context, dataSource=SimpleNamespace(register=refuse))


def test_a_format_that_spark_has_found_may_be_registered_again_also_on_4_0():
    register(refusing("DATA_SOURCE_ALREADY_EXISTS"))


def test_another_error_of_the_registration_is_raised():
    with pytest.raises(AnalysisException):
        register(refusing("DATA_SOURCE_NOT_FOUND"))
