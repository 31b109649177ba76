"""The Python of the workers, as a machine may have it."""

import sys
from pathlib import Path

import pytest

from storage_engine.tests.tools.spark_check.programs import SPARK_HOME, program
from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.workers import check_workers

pytestmark = pytest.mark.usefixtures("bare")


def _python3(tmp_path: Path, text: str) -> None:
    program(tmp_path / "path" / "python3", text)


def test_python3_of_the_path_that_is_this_python_will_do(tmp_path):
    _python3(tmp_path, f'exec "{sys.executable}" "$@"')
    found = check_workers(SPARK_HOME)
    version = ".".join(map(str, sys.version_info[:3]))
    assert found.verdict is CheckVerdict.OK
    assert found.found == f"{version}, {sys.executable} by 'python3' of the PATH"


def test_a_python_without_the_package_is_told_with_three_remedies(tmp_path, monkeypatch):
    # Without site-packages, and away from the clone.
    _python3(tmp_path, f'exec "{sys.executable}" -S -P "$@"')
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = check_workers(SPARK_HOME)
    assert found.verdict is CheckVerdict.TO_DO
    assert found.remedy == (
        "it does not have all that the format needs (ModuleNotFoundError: No module named "
        "'pyarrow'): write 'import connector' in the job before the session is built, or activate "
        f"the environment, or set PYSPARK_PYTHON={sys.executable}"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('echo \'{"version": "3.8.1", "executable": "/p"}\'', "Spark wants one minor version of"),
        (
            f'echo \'{{"version": "{sys.version_info[0]}.{sys.version_info[1]}.0", '
            '"executable": "/p", "headrace": "0.0.1"}\'',
            "its headrace is 0.0.1, and this one ",
        ),
        (
            "echo usage: jupyter >&2; exit 2",
            "it does not run Python's programs: set PYSPARK_PYTHON",
        ),
    ],
)
def test_a_chosen_python_that_does_not_fit_is_told(tmp_path, monkeypatch, text, complaint):
    chosen = program(tmp_path / "chosen", text)
    monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    found = check_workers(SPARK_HOME)
    assert found.verdict is CheckVerdict.TO_DO
    assert f"PYSPARK_PYTHON={chosen}" in found.found
    assert found.remedy.startswith(complaint)


def test_a_drivers_python_that_is_no_python_also_starts_the_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(program(tmp_path / "jupyter", "exit 2")))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = check_workers(SPARK_HOME)
    assert found.remedy == (
        "it does not run Python's programs, and Spark starts its workers by this variable, too: "
        f"unset PYSPARK_DRIVER_PYTHON, and set PYSPARK_PYTHON={sys.executable}"
    )


def test_a_chosen_python_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/gone/python")
    found = check_workers(SPARK_HOME)
    assert found.found == "PYSPARK_PYTHON=/opt/gone/python: not found"
    assert found.remedy.startswith(f"there is no such program: set PYSPARK_PYTHON={sys.executable}")
