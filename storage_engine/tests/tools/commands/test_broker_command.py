"""`headrace broker`: its log rotates, its limit of open files is raised, its mistakes are told."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.settings.environment import setting_variables
from storage_engine.tools.cli import main
from storage_engine.tools.commands.broker import (
    LOG_FILE_COUNT,
    raise_descriptor_limit,
    settings_in,
)

SETTINGS = (
    "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=/nowhere\n"
    "zookeeper.connect=127.0.0.1:1\n"
)


def test_a_log_file_rotates_and_old_ones_go(tmp_path: Path) -> None:
    code = (
        "import logging, pathlib, sys\n"
        "from storage_engine.tools.commands.broker import set_up_logging\n"
        "set_up_logging(pathlib.Path(sys.argv[1]), file_bytes=1000, level='info')\n"
        "for i in range(200): logging.getLogger('x').info('line %d of the log', i)\n"
    )
    file = tmp_path / "logs" / "broker.log"
    subprocess.run([sys.executable, "-c", code, file], check=True, cwd=Path(__file__).parents[4])
    assert len(list(file.parent.iterdir())) == 1 + LOG_FILE_COUNT
    assert all(path.stat().st_size <= 1000 for path in file.parent.iterdir())
    assert "line 199 of the log" in file.read_text()


def test_what_a_broker_writes_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    data, logs = tmp_path / "data", tmp_path / "logs"
    settings = SETTINGS.replace("/nowhere", str(data))
    config.write_text(f"{settings}zookeeper.connection.timeout.ms=100\n")
    command = ["broker", str(config), "--log-file", str(logs / "broker.log")]
    done = subprocess.run(
        [sys.executable, "-m", "storage_engine.tools.cli", *command],
        cwd=Path(__file__).parents[4],
        umask=0o022,
        capture_output=True,
        check=False,
    )
    assert b"can't reach ZooKeeper" in done.stderr
    written = [data, *data.rglob("*"), logs, *logs.rglob("*")]
    assert data / ".lock" in written
    assert logs / "broker.log" in written
    assert {oct(path.stat().st_mode & 0o077) for path in written} == {"0o0"}


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("min.insync.replica=2\n", "min.insync.replicas"),
        ("num.partitions=none\n", "num.partitions"),
        ("broker.id=-5\n", "broker.id"),
        ("listeners=9092\n", "listeners"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_file_and_key(
    change: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(SETTINGS + change)
    assert main(["broker", str(config)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"headrace: {config}: ")
    assert text in errors
    assert errors.count("\n") == 1


def test_a_setting_of_the_command_line_wins_over_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(SETTINGS)
    assert main(["broker", str(config), "--set", "listeners=nonsense"]) == 1
    assert "listeners=nonsense" in capsys.readouterr().err


def test_a_configuration_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", str(tmp_path / "none.properties")]) == 1
    errors = capsys.readouterr().err
    assert "none.properties can't be read" in errors
    assert errors.count("\n") == 1


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests have some of their own, which are no settings."""
    for name in setting_variables(os.environ, []):
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_variables")
def test_a_wrong_variable_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_ZOOKEEPER_CONECT", "127.0.0.1:1")
    assert main(["broker", "--environment"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("headrace: HEADRACE_ZOOKEEPER_CONECT: there is no setting")
    assert "did you mean 'zookeeper.connect'?" in errors


def test_variables_count_above_the_file_and_below_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(SETTINGS + "num.partitions=2\nmin.insync.replicas=2\n")
    given = settings_in({"HEADRACE_BROKER_ID": "7", "HEADRACE_NUM_PARTITIONS": "5"})
    loaded = BrokerConfig.load(config, {**given, "num.partitions": "9"})
    assert (loaded.broker_id, loaded.integer("num.partitions")) == (7, 9)
    assert loaded.integer("min.insync.replicas") == 2


@pytest.mark.usefixtures("no_variables")
def test_variables_and_settings_of_the_command_line_go_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_BROKER_ID", "7")
    assert main(["broker", "--environment", "--set", "log.dirs=/nowhere"]) == 1
    assert "the setting 'zookeeper.connect' is missing" in capsys.readouterr().err


@pytest.mark.usefixtures("no_variables")
def test_without_a_file_and_without_variables_nothing_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["broker"]) == 2
    assert "give --environment" in capsys.readouterr().err
    assert main(["broker", "--environment"]) == 1
    assert "the setting 'broker.id' is missing" in capsys.readouterr().err
