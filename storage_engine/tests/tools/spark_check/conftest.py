"""A machine on which nothing is installed."""

import pytest


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No Java, no `python3`, nothing chosen."""
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
