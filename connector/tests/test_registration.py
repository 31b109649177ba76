"""The format registered with a session."""

import os
import sys
from types import SimpleNamespace

import pytest
from pyspark import SparkFiles
from pyspark.errors import AnalysisException

from connector import register
from connector.registration import _own_archives, _this_python


@pytest.mark.parametrize(
    ("master", "chosen", "is_this"),
    [
        ("local[2]", None, True),
        ("spark://h:7077", None, False),
        ("local[2]", "/opt/python", False),
    ],
)
def test_a_registered_format_is_run_by_this_python_where_none_was_chosen(
    monkeypatch, master, chosen, is_this
):
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYTHON_WORKER_FACTORY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", chosen or "")
    monkeypatch.setenv("PATH", "/nowhere")
    context = SimpleNamespace(master=master, pythonExec="python3")
    with _this_python(SimpleNamespace(sparkContext=context)):
        assert context.pythonExec == (sys.executable if is_this else "python3")
    assert context.pythonExec == "python3"


@pytest.mark.parametrize("before", [{}, {"PYTHONPATH": "/own"}])
def test_a_registered_format_names_the_archives_of_the_job_to_the_planner_of_streams(
    monkeypatch, before
):
    monkeypatch.setattr(SparkFiles, "get", "/files/{}".format)
    context = SimpleNamespace(_python_includes=["a.zip", "b.egg"], environment=dict(before))
    with _own_archives(SimpleNamespace(sparkContext=context)):
        found = context.environment["PYTHONPATH"].split(os.pathsep)
        assert found == ["/files/a.zip", "/files/b.egg", *before.values()]
    assert context.environment == before


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
