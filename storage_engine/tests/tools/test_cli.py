"""The command's entry: exit statuses, one-line errors, help."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_engine.tools.cli import COMMANDS, main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("\nexample")
    assert f"headrace {name} " in examples


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert all(f"  {command.name} " in output for command in COMMANDS)


def test_a_command_imports_no_pandas_though_arrow_asks_for_it() -> None:
    code = (
        "import runpy, sys\nsys.argv = ['headrace', '--version']\n"
        "try: runpy.run_module('storage_engine.tools.cli', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "import pyarrow\npyarrow.scalar(1)\nsys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_imports_neither_arrow_nor_the_broker() -> None:
    code = (
        "import sys\nfrom storage_engine.tools.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pyarrow', 'numpy', 'storage_engine.broker'} & set(sys.modules)\n"
        "heavy |= {name for name in sys.modules if name.startswith('kafka.')}\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def test_a_terminal_that_lacks_a_character_is_given_its_number() -> None:
    code = "from storage_engine.tools.cli import main\nmain(['--help'])"
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    assert b"\\u2026" in told.stdout


def test_an_unknown_command_is_wrong_usage_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["statsu"]) == 2
    assert capsys.readouterr().err == (
        "headrace: there is no command 'statsu'; did you mean 'status'?\n"
    )


@pytest.mark.parametrize(
    ("command", "package"), [("simulate", "simulation"), ("bench", "benchmarks")]
)
def test_a_command_of_the_repository_says_where_it_is(
    tmp_path: Path, command: str, package: str
) -> None:
    """Where the package alone is installed; by a link to it, without what stands beside it."""
    for name in ("storage_engine", "headrace_console", "headrace_registry"):
        (tmp_path / name).symlink_to(ROOT / name)
    outside = [path for path in sys.path if path and Path(path).resolve() != ROOT]
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-m", "storage_engine.tools.cli", command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *outside])},
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"headrace: '{package}' is not installed with Headrace: run this command in a clone of its"
        f" repository, where it is the directory {package}/\n"
    )


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: headrace COMMAND" in capsys.readouterr().err


def test_an_unknown_option_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["status", "--directory", "x"])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "arguments", [["status"], ["down"], ["stop-broker", "1"], ["start-broker", "1"]]
)
def test_a_folder_without_a_cluster_is_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--dir", str(tmp_path)]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"headrace: there is no cluster in '{tmp_path}'")
    assert errors.count("\n") == 1
