"""`headrace machine`: arguments, and what is printed."""

import json
from pathlib import Path

import pytest

from storage_engine.tools.cli import FAILED, WRONG_USAGE, main
from storage_engine.tools.local.free_ports import find_free_port


@pytest.fixture(autouse=True)
def no_zookeeper(monkeypatch):
    monkeypatch.setattr("storage_engine.zookeeper.live_brokers.live_hosts", lambda *_: {})


def init(tmp_path: Path, *more: str) -> list[str]:
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    return [
        *("machine", "init", "--dir", str(tmp_path / "m"), "--host", "127.0.0.1"),
        *("--first-id", "7", "--cores", "2", "--disks", str(disk), "--zookeeper", "127.0.0.1:1"),
        *("--base-port", str(find_free_port("127.0.0.1")), "--same-disk-ok", "--shared-cores-ok"),
        *more,
    ]


def test_init_says_how_systemd_takes_the_units(tmp_path, capsys):
    assert main(init(tmp_path, "--user")) == 0
    output = capsys.readouterr().out
    assert output.split()[:2] == ["ID", "PORT"]
    assert f"/systemd/user {tmp_path}/m/units/*" in output
    assert "systemctl --user enable --now headrace-brokers.target" in output


def test_what_init_and_status_print_as_json_has_the_same_brokers(tmp_path, capsys):
    assert main(init(tmp_path, "--json", "--memory", "1g")) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["added"] == [7, 8]
    assert made["memory_mib"] == 1024
    assert main(["machine", "status", "--dir", str(tmp_path / "m"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["supervisor"] == "processes"
    assert status["bootstrap_servers"] == made["bootstrap_servers"]
    assert [each["id"] for each in status["brokers"]] == [7, 8]
    assert {each["pid"] for each in status["brokers"]} == {None}
    assert main(["machine", "status", "--dir", str(tmp_path / "m")]) == 0
    assert "machine 127.0.0.1, brokers run as processes" in capsys.readouterr().out


def test_settings_come_from_a_file_and_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "settings"
    file.write_text("num.partitions=3\nlog.retention.hours=5\n")
    assert main(init(tmp_path, "--settings", str(file), "--set", "num.partitions=4")) == 0
    text = (tmp_path / "m" / "broker-7" / "server.properties").read_text()
    assert "num.partitions=4\n" in text
    assert "log.retention.hours=5\n" in text


@pytest.mark.parametrize(
    ("more", "status", "problem"),
    [
        (["--memory", "lots"], WRONG_USAGE, "--memory 'lots' is no size"),
        (["--disks", "d1"], WRONG_USAGE, "'d1' is no path"),
        (["--set", "x"], WRONG_USAGE, "is not of the form KEY=VALUE"),
        (["--settings", "/no/file"], FAILED, "/no/file can't be read"),
        (["--host", "a b"], WRONG_USAGE, "--host 'a b' is no name of a host"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, more, status, problem):
    assert main(init(tmp_path, *more)) == status
    errors = capsys.readouterr().err
    assert problem in errors
    assert errors.count("\n") == 1


def test_a_directory_without_a_machine_is_told(tmp_path, capsys):
    for action in ("start", "stop", "restart", "status"):
        assert main(["machine", action, "--dir", str(tmp_path)]) == FAILED
        assert "headrace machine init" in capsys.readouterr().err
