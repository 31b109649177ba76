"""`headrace up`: what stops it before anything starts."""

import socket
from pathlib import Path

import pytest

from storage_engine.tools.cli import main


def test_a_taken_port_stops_up_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["up", "--dir", str(tmp_path), "--brokers", "1", "--port", str(port)]) == 1
    errors = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1, for broker 1, is in use" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "cluster.json").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--set", "min.insync.replica=2"], 1, "min.insync.replicas"),
        (["--set", "num.partitions"], 2, "is not of the form KEY=VALUE"),
        (["--set", "num.partitions=many"], 1, "num.partitions"),
        (["--brokers", "0"], 2, "--brokers 0 is impossible"),
        (["--zookeeper", "a:b"], 2, "--zookeeper 'a:b'"),
    ],
)
def test_wrong_arguments_stop_up_before_anything_starts(
    arguments: list[str],
    status: int,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = tmp_path / "cluster"
    assert main(["up", "--dir", str(directory), "--port", "0", *arguments]) == status
    errors = capsys.readouterr().err
    assert text in errors
    assert errors.count("\n") == 1
    assert not (directory / "cluster.json").exists()


def test_a_file_in_the_place_of_the_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.touch()
    assert main(["up", "--dir", str(path), "--port", "0"]) == 1
    assert "is not a folder; give another --dir" in capsys.readouterr().err
