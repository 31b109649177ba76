"""A broker's files tell why it ended."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.tools.local.broker_process import BrokerProcess, environment_of_child, last_line
from storage_engine.tools.local.cluster_file import BrokerEntry


@pytest.fixture
def process(tmp_path: Path) -> BrokerProcess:
    process = BrokerProcess(tmp_path, BrokerEntry.for_id(1, "127.0.0.1", 9092))
    process.raw_output.parent.mkdir()
    return process


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ""),
        ("one\ntwo\n", "two"),
        ("one\n  two \n\n \n", "two"),
        ("cut", "cut"),
        ("x" * 10_000 + "\nlast\n", "last"),
    ],
)
def test_the_last_line_is_the_last_that_is_not_empty(tmp_path: Path, content, expected) -> None:
    file = tmp_path / "log"
    file.write_text(content)
    assert last_line(file) == expected


def test_bytes_that_are_no_text_hide_no_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"\xff\nlast \xfe\n")
    assert last_line(file) == "last \ufffd"
    assert last_line(tmp_path / "none") == ""


def test_its_last_words_are_its_errors_before_its_log(process: BrokerProcess) -> None:
    assert process.last_words() == f"it said nothing, see '{process.log_file}'"
    process.log_file.write_text("starting\n")
    assert process.last_words() == "starting"
    process.raw_output.write_text("headrace: the port is in use\n")
    assert process.last_words() == "the port is in use"


def test_a_pid_that_another_process_has_by_now_is_not_the_brokers(tmp_path: Path) -> None:
    entry = replace(BrokerEntry.for_id(1, "127.0.0.1", 9092), pid=os.getpid())
    process = BrokerProcess(tmp_path, entry)
    assert process.find() is None
    process.kill()


def test_a_child_finds_this_very_package_before_others(monkeypatch) -> None:
    root = str(Path(__file__).parents[4])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert environment_of_child()["PYTHONPATH"] == root
    monkeypatch.setenv("PYTHONPATH", "/other")
    assert environment_of_child()["PYTHONPATH"] == f"{root}:/other"
