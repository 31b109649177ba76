"""`headrace bench log`: what it refuses, and what it leaves behind."""

import subprocess
import sys

import pytest

from storage_engine.tools.cli import main


def test_a_run_that_is_told_to_stop_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", "log", "--no-broker"]
    with subprocess.Popen([*command, "--dir", str(tmp_path)], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        assert run.stderr.readline().startswith(b"1: append")
        assert list(tmp_path.iterdir())
        run.terminate()
        run.communicate()
    assert run.returncode
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--bytes", "1000"], "--bytes and --large-log must be"),
        (["--dir", "/does/not/exist"], "is not a directory; create it first"),
    ],
)
def test_arguments_that_can_not_be_right_are_refused(options, complaint, capsys):
    assert main(["bench", "log", *options]) == 2
    assert complaint in capsys.readouterr().err
