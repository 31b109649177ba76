"""A session as it was found, by a program that stands for the one that builds it."""

import json

import pytest

from storage_engine.tools.spark_check import session
from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.session import SessionPlan, check_session, last_words

PLAN = SessionPlan(timeout_s=20)


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """Takes the text of a program that stands for the one that builds a session."""

    def stand_for(text: str) -> None:
        file = tmp_path / "probe.py"
        file.write_text(f"import json, pathlib, sys, time\n{text}")
        monkeypatch.setattr(session, "PROBE", file)

    return stand_for


def _saying(**found):
    return f"pathlib.Path(sys.argv[1]).write_text({json.dumps(found)!r})"


SESSION = {"version": "4.3.0", "seconds": 2.0, "master": "local[2]", "cores": 2}


def _by_check(pyspark="4.3.0", are_workers_right=True):
    found = check_session(PLAN, pyspark=pyspark, are_workers_right=are_workers_right)
    return {each.check: each for each in found}


def test_a_good_session_is_told_with_the_python_of_its_tasks(probe):
    probe(_saying(**SESSION, settings={}, format=None, task=None, executables=["/p"]))
    found = _by_check()
    assert found["session"].found == "Spark 4.3.0, local[2], started in 2.0 s"
    assert found['format("headrace")'].verdict is CheckVerdict.OK
    assert found["task"].found == "runs in /p"
    assert found["spark.python.worker.reuse"].verdict is CheckVerdict.OK


def test_another_spark_than_pyspark_is_told(probe, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    probe(_saying(**SESSION, settings={}, format=None, task=None, executables=["/p"]))
    found = _by_check(pyspark="4.2.0")["session"]
    assert found.verdict is CheckVerdict.TO_DO
    assert found.remedy.startswith("unset SPARK_HOME, which is /opt/spark, or install the same")


def test_a_format_that_is_not_found_and_a_task_that_fails_are_told(probe):
    missing = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: headrace."
    trace = "Job aborted\n\tat org.Thing\nModuleNotFoundError: No module named 'pyarrow'\n\tat x"
    probe(_saying(**SESSION, settings={}, format=missing, task=trace))
    found = _by_check()
    assert found['format("headrace")'].found == "not found"
    assert "call connector.register(spark) in the job" in found['format("headrace")'].remedy
    assert found["task"].remedy == "ModuleNotFoundError: No module named 'pyarrow'"
    found = _by_check(are_workers_right=False)
    follows = "nothing by itself: it follows from the Python of the workers"
    assert found['format("headrace")'].remedy == follows
    assert found["task"].remedy.startswith(f"{follows} (ModuleNotFoundError: ")


def test_a_session_that_dies_half_way_is_told_by_its_last_words(probe):
    probe(_saying(**SESSION) + "\nsys.exit('Error: the JVM is gone')")
    found = _by_check()
    assert found["session"].verdict is CheckVerdict.OK
    assert found["task"].remedy == "Error: the JVM is gone"
    assert "spark.python.worker.reuse" not in found


def test_a_session_that_does_not_start_is_told_by_its_last_words(probe):
    probe("print('Exception: Java gateway process exited')\nsys.exit(1)")
    (found,) = check_session(PLAN, pyspark="4.3.0", are_workers_right=True)
    assert (found.found, found.verdict) == ("failed", CheckVerdict.TO_DO)
    assert found.remedy == "Exception: Java gateway process exited"


def test_a_session_that_does_not_answer_is_ended(probe):
    probe("time.sleep(60)")
    (found,) = check_session(SessionPlan(timeout_s=0.3), pyspark="4.3.0", are_workers_right=True)
    assert (found.found, found.remedy) == ("not started", "no answer within 0.3 s (--timeout)")


def test_the_last_words_are_those_that_name_an_error():
    assert last_words("a\nValueError: no\n\tat java.lang.Error\n  done\n") == "ValueError: no"
    assert last_words("first\nlast\n") == "last"
    assert last_words("") == "it said nothing"
    assert last_words("x" * 1000) == "x" * 300 + "…"
