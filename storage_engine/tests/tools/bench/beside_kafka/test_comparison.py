"""The errors of the comparison with Apache Kafka, before anything starts."""

import pytest

from storage_engine.tests.tools.bench.printed import one_line
from storage_engine.tools.cli import main


def test_no_java_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["bench", "beside-kafka", "--folder", str(tmp_path)]) == 1
    assert one_line(capsys).startswith("headrace: Java was not found")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "5"], "--rows is 5"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
        (["--conf", "spark.ui.enabled"], "--conf 'spark.ui.enabled' is not of the form KEY=VALUE"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_before_anything_starts(capsys, arguments, problem):
    assert main(["bench", "beside-kafka", *arguments]) == 2
    assert problem in one_line(capsys)


def test_an_unknown_row_is_refused_with_the_names_of_all(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "beside-kafka", "--only", "batch-reed"])
    assert ended.value.code == 2
    assert "batch-read" in capsys.readouterr().err
