"""`headrace get-offsets`: the offsets of all partitions of the topics that were named."""

import json

import pytest

from storage_engine.tools.cli import main


def offsets(capsys, fake, *arguments):
    assert main(["get-offsets", "--bootstrap-server", fake.bootstrap_servers, *arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def fake(fake):
    for topic in ("a", "b"):
        fake.add_topic(topic, [1, 2])
    fake.partition("b", 1).start_offset, fake.partition("b", 1).end_offset = 4, 9
    return fake


def test_the_latest_offset_of_each_partition_is_shown_by_topic_and_number(capsys, fake):
    table = offsets(capsys, fake, "--topic", "b", "--topic", "a")
    assert [line.split() for line in table.splitlines()] == [
        ["TOPIC", "PARTITION", "OFFSET"],
        ["a", "0", "0"],
        ["a", "1", "0"],
        ["b", "0", "0"],
        ["b", "1", "9"],
    ]


def test_the_earliest_ones_are_shown_when_they_are_asked_for(capsys, fake):
    rows = json.loads(offsets(capsys, fake, "--topic", "b", "--time", "earliest", "--json"))
    assert [row["offset"] for row in rows] == [0, 4]


def test_a_time_behind_the_last_record_has_no_offset(capsys, fake):
    partition = fake.partition("b", 1)
    partition.readable_to = -1
    rows = json.loads(offsets(capsys, fake, "--topic", "b", "--time", "2026-01-01", "--json"))
    assert rows[1] == {"topic": "b", "partition": 1, "offset": None}
    (asked,) = {
        row.timestamp
        for each in fake.asked
        if each.api == "ListOffsets"
        for row in each.message.partitions
    }
    assert asked == 1_767_225_600_000


@pytest.mark.usefixtures("unknown_topics_are_told_soon")
def test_a_topic_that_is_not_there_is_one_line(capsys, fake):
    arguments = ["--bootstrap-server", fake.bootstrap_servers, "--topic", "none"]
    assert main(["get-offsets", *arguments]) == 1
    errors = capsys.readouterr().err
    assert "topic 'none' does not exist" in errors and errors.count("\n") == 1


def test_another_time_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["get-offsets", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--time", "now"])
    assert caught.value.code == 2
    assert "'now' is not a time" in capsys.readouterr().err
