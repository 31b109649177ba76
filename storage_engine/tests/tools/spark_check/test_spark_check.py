"""The command: what it prints, its exit status; settings and a session as they were found."""

import json
from pathlib import Path

import pytest

from storage_engine.tools.cli import main
from storage_engine.tools.commands import spark_check
from storage_engine.tools.spark_check import session
from storage_engine.tools.spark_check.findings import CheckVerdict, Finding
from storage_engine.tools.spark_check.session import SessionPlan, check_session, last_words
from storage_engine.tools.spark_check.settings import SETTINGS, judge_settings

PLAN = SessionPlan(timeout_s=20)
DOCUMENT = Path(__file__).parents[4] / "docs" / "spark.md"


def _advised(given, **where):
    where = {"version": (4, 3), "cores": 2} | where
    return {
        each.check: each.remedy
        for each in judge_settings(given, **where)
        if each.verdict is CheckVerdict.ADVICE
    }


def test_spark_as_it_comes_is_advised_of_two_settings():
    assert set(_advised({})) == {
        "spark.python.unix.domain.socket.enabled",
        "spark.sql.shuffle.partitions",
    }


def test_a_version_is_not_advised_of_what_it_lacks():
    assert set(_advised({}, version=(4, 0))) == {"spark.sql.shuffle.partitions"}


def test_good_settings_need_no_advice():
    good = {
        "spark.python.unix.domain.socket.enabled": "TRUE",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
    }
    assert _advised(good) == {}


@pytest.mark.parametrize(
    ("name", "value", "beginning"),
    [
        ("spark.python.worker.reuse", "false", "set it to true: "),
        ("spark.python.use.daemon", "false", "set it to true: "),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "500", "leave it at 10000: "),
        ("spark.sql.shuffle.partitions", "8", "set it to 2, the number of cores, "),
        ("spark.sql.python.filterPushdown.enabled", "true", "set it to false: "),
    ],
)
def test_a_setting_that_costs_speed_is_told(name, value, beginning):
    assert _advised({name: value})[name].startswith(beginning)


def test_many_cores_and_servers_of_unknown_size_may_have_many_shuffle_partitions():
    name = "spark.sql.shuffle.partitions"
    assert name not in _advised({name: "200"}, cores=64)
    assert name not in _advised({name: "100"}, cores=None)
    assert "set it to the number of cores" in _advised({name: "200"}, cores=None)[name]


def test_every_setting_is_in_the_document():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [each.name for each in SETTINGS if f"`{each.name}`" not in text] == []


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


FINDINGS = [
    Finding(check="Java", found="17"),
    Finding(check="slow", found="no", verdict=CheckVerdict.ADVICE, remedy="make it fast"),
    Finding(check="broken", found="yes", verdict=CheckVerdict.TO_DO, remedy="mend it"),
]


@pytest.mark.parametrize(("findings", "status"), [(FINDINGS, 1), (FINDINGS[:2], 0)])
def test_the_exit_status_says_whether_something_must_be_done(monkeypatch, capsys, findings, status):
    monkeypatch.setattr(spark_check, "check", lambda plan: findings)
    assert main(["spark-check"]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CHECK", "FOUND", "RESULT"]
    assert lines[-1].startswith("not ready" if status else "ready")


def test_the_necessary_comes_before_advice(monkeypatch, capsys):
    monkeypatch.setattr(spark_check, "check", lambda plan: FINDINGS)
    main(["spark-check"])
    output = capsys.readouterr().out
    assert output.index("to do: broken\n  mend it") < output.index("advice: slow\n  make it fast")


def test_programs_get_json(monkeypatch, capsys):
    monkeypatch.setattr(spark_check, "check", lambda plan: FINDINGS[:1])
    assert main(["spark-check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ready": True,
        "checks": [{"check": "Java", "found": "17", "verdict": "ok", "remedy": ""}],
    }


def test_a_setting_without_a_value_is_wrong_usage(capsys):
    assert main(["spark-check", "--conf", "spark.x"]) == 2
    assert "--conf 'spark.x' is not of the form KEY=VALUE" in capsys.readouterr().err


def test_a_session_is_not_tried_without_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(spark_check, "check_session", lambda *_, **__: pytest.fail("tried"))
    assert CheckVerdict.TO_DO in {each.verdict for each in spark_check.check(PLAN)}
