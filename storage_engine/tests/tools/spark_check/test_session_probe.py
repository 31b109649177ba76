"""The program that builds a session: what it reports of a step, and from a task."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from storage_engine.tools.spark_check import session_probe
from storage_engine.tools.spark_check.session_probe import Given, error_of, given_names, in_task


def test_an_error_is_told_in_its_own_words_and_one_without_words_by_its_kind():
    def failing(error: Exception) -> None:
        raise error

    assert error_of(lambda: None) is None
    assert error_of(lambda: failing(ValueError("no format"))) == "no format"
    assert error_of(lambda: failing(KeyError())) == "KeyError"


def test_a_task_tells_its_python_once_whatever_it_is_given():
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    (row,) = (each.to_pylist() for each in in_task(iter([batch, batch])))
    assert row == [{"executable": sys.executable}]


def test_names_of_a_remote_session_are_those_that_were_given():
    remote = Given(master=None, remote="sc://h", conf={"spark.x": "secret"}, names=[])
    nothing: Any = None
    assert given_names(nothing, remote) == {"spark.x"}
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: [("spark.y", "1")]))
    spark: Any = SimpleNamespace(sparkContext=context)
    local = Given(master=None, remote=None, conf={"spark.x": "secret"}, names=[])
    assert given_names(spark, local) == {"spark.x", "spark.y"}


def test_the_program_imports_nothing_of_headrace():
    code = (
        f"import runpy, sys; runpy.run_path({session_probe.__file__!r}, run_name='probe')\n"
        "sys.exit(any(n.split('.')[0] in ('storage_engine', 'connector') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
