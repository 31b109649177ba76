"""`headrace merge-state-log`: R-TOOL5."""

import json
from pathlib import Path

import pytest

from storage_engine.tools.cli import main

ONE = """\
2026-11-21T20:40:01.000Z broker=1 elect partition=t-0 leader=1 leader_epoch=1 isr=[1, 2]
2026-11-21T20:40:03.500Z broker=1 became leader partition=t-0 leader=1 leader_epoch=1 isr=[1, 2]
2026-11-21T20:41:00.000Z broker=1 deleted partition=other-topic-10
"""
TWO = """\
2026-11-21T20:40:02.000Z broker=2 became follower partition=t-0 leader=1 leader_epoch=1 isr=[1, 2]
2026-11-21T20:40:03.500Z broker=2 became leader partition=t-1 leader=2 leader_epoch=0 isr=[2]
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, content in (("1.log", ONE), ("2.log", TWO)):
        (tmp_path / name).write_text(content)
    return [str(tmp_path / "1.log"), str(tmp_path / "2.log")]


def merged(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["merge-state-log", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_changes_of_all_brokers_come_by_time(files, capsys):
    lines = merged(capsys, *files)
    assert sorted(lines) == sorted((ONE + TWO).splitlines())
    assert [line[:24] for line in lines] == sorted(line[:24] for line in lines)
    assert merged(capsys, *reversed(files))[2:4] == lines[3:1:-1]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--topic", "t"], [0, 1, 2, 3]),
        (["--topic", "other-topic"], [4]),
        (["--topic", "other"], []),
        (["--partitions", "0,10"], [0, 1, 2, 4]),
        (["--from", "2026-11-21T20:40:02"], [1, 2, 3, 4]),
        (["--from", "2026-11-21T20:40:02.001Z", "--to", "2026-11-21T21:41+01:00"], [2, 3]),
        (["--topic", "t", "--partitions", "1", "--to", "2026-11-21T20:40:03.5"], []),
    ],
)
def test_filters_leave_what_was_asked_for(files, capsys, filters, expected):
    every = merged(capsys, *files)
    assert merged(capsys, *files, *filters) == [every[number] for number in expected]


def test_json_tells_broker_topic_and_partition_apart(files, capsys):
    documents = [json.loads(line) for line in merged(capsys, "--json", *files)]
    assert documents[-1] == {
        "time": "2026-11-21T20:41:00.000Z",
        "broker": 1,
        "topic": "other-topic",
        "partition": 10,
        "change": "deleted partition=other-topic-10",
    }


def test_a_line_that_is_being_written_is_left_out(files, capsys):
    with Path(files[0]).open("a") as file:
        file.write("2026-11-21T20:41:01.000Z broker=1 became lea")
    assert len(merged(capsys, *files)) == 5


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"2026-11-21 20:40:01,000 INFO headrace: hello\n", "line 1 is not of a state-change.log"),
        (ONE.encode() + b"\xff\xfe\n", "line 4 is not"),
        (b"2026-13-21T20:40:01.000Z broker=1 stopped partition=t-0\n", "line 1 is not"),
        (b"2026-11-21T20:40:01.000Z broker=1 stopped t-0\n", "line 1 is not"),
    ],
)
def test_other_files_are_refused_with_the_line(tmp_path, capsys, content, told):
    file = tmp_path / "broker.log"
    file.write_bytes(content)
    assert main(["merge-state-log", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"headrace: {file}: {told}")
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    assert main(["merge-state-log", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--from", "yesterday"], ["--partitions", "0,x"], []])
def test_wrong_usage_is_told(files, wrong, capsys):
    with pytest.raises(SystemExit) as end:
        main(["merge-state-log", *(files if wrong else []), *wrong])
    assert end.value.code == 2
