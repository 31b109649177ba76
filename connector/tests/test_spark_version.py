"""The versions of Spark that the format takes, and what it says to others."""

import logging

import pyspark
import pytest

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
