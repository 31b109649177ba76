"""`machine.json`: written whole, and checked when it is read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.tests.tools.local.machine.made_layout import NEW, laid_out
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.machine import machine_file

LAYOUT = laid_out(replace(NEW, rack="z1"))


def test_what_is_written_is_read(tmp_path):
    assert not machine_file.exists(tmp_path)
    machine_file.write(tmp_path, LAYOUT)
    assert machine_file.exists(tmp_path)
    assert machine_file.read(tmp_path) == LAYOUT
    document = json.loads((tmp_path / "machine.json").read_text())
    assert document["bootstrap_servers"].startswith("h1:9092,h1:9093,")


def test_a_directory_without_one_is_told(tmp_path):
    with pytest.raises(CommandError, match="lay one out with: headrace machine init"):
        machine_file.read(tmp_path)


def changed(tmp_path: Path, **changes: object) -> str:
    machine_file.write(tmp_path, LAYOUT)
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CommandError) as caught:
        machine_file.read(tmp_path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"brokers": []}, "'brokers' must be a list that is not empty"),
        ({"brokers": [7]}, "'brokers[0]' must be an object"),
        ({"disks": [""]}, "'disks' must be a list of strings that are not empty"),
        ({"host": 1}, "'host' must be a string"),
        ({"version": 2}, "a later version of Headrace wrote it"),
        ({"base_port": 70_000}, "'base_port' must be a whole number from 1 to 65535"),
        ({"has_shared_disks": "no"}, "'has_shared_disks' must be true or false"),
    ],
)
def test_a_file_that_is_not_ours_is_told(tmp_path, changes, problem):
    assert problem in changed(tmp_path, **changes)


def test_an_id_that_stands_twice_is_told(tmp_path):
    brokers = [{"id": 1, "port": 9092 + i, "cpu": i, "log_dirs": ["/d"]} for i in range(2)]
    assert "two brokers have the same id" in changed(tmp_path, brokers=brokers)


def test_half_a_file_is_told(tmp_path):
    machine_file.write(tmp_path, LAYOUT)
    path = tmp_path / "machine.json"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(CommandError, match="it is not JSON"):
        machine_file.read(tmp_path)
