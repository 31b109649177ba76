"""`headrace zookeeper`: arguments, and what it becomes. `test_zookeeper_server` has the folder."""

import os

import pytest

from storage_engine.tools.cli import FAILED, WRONG_USAGE, main
from storage_engine.tools.local.free_ports import find_free_port


def test_the_command_becomes_the_server(tmp_path, capsys, monkeypatch):
    became = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: became.append((path, arguments)))
    monkeypatch.setattr(os, "umask", lambda _mask: 0)
    port = find_free_port("127.0.0.1")
    main(["zookeeper", "--dir", str(tmp_path / "zk"), "--client-port", str(port), "--heap", "64m"])
    ((path, arguments),) = became
    assert path == arguments[0]
    assert arguments[-1] == str(tmp_path / "zk" / "zoo.cfg")
    assert "-Xmx64m" in arguments
    line = f"ZooKeeper starts on 127.0.0.1:{port}, with its data in {tmp_path / 'zk'}\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("more", "status", "problem"),
    [
        (["--client-port", "0"], WRONG_USAGE, "--client-port 0 is impossible"),
        (["--set", "tickTime"], WRONG_USAGE, "is not of the form KEY=VALUE"),
        (["--id", "1"], WRONG_USAGE, "give --ensemble, too"),
        (["--id", "1", "--ensemble", "h1,h2"], FAILED, "is not of the form 1=HOST"),
        (["--heap", "much"], WRONG_USAGE, "--heap 'much' is no size"),
        (["--keep-config"], FAILED, "--keep-config: there is no"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, more, status, problem):
    assert main(["zookeeper", "--dir", str(tmp_path / "zk"), *more]) == status
    errors = capsys.readouterr().err
    assert problem in errors
    assert errors.count("\n") == 1
