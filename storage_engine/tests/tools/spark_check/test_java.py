"""Java, as a machine may have it."""

from pathlib import Path

import pytest

from storage_engine.tests.tools.spark_check.programs import program
from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.java import check_java

pytestmark = pytest.mark.usefixtures("bare")


def _java(folder: Path, version: str) -> Path:
    return program(folder / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")


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
