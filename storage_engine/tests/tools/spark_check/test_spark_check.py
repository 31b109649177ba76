"""`headrace spark-check`: what it prints, and its exit status."""

import json

import pytest

from storage_engine.tools.cli import main
from storage_engine.tools.commands import spark_check
from storage_engine.tools.spark_check.findings import CheckVerdict, Finding
from storage_engine.tools.spark_check.session import SessionPlan

PLAN = SessionPlan(timeout_s=20)


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
