"""R-TOOL4: plans of a reassignment as files."""

import json
from pathlib import Path

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.placement.reassign_plan import (
    broker_list,
    plan_text,
    read_log_dirs,
    read_partitions,
    read_plan,
    read_topics,
)
from storage_engine.zookeeper.admin_znodes import ReassignPartitionsZNode

TP = TopicPartition("t", 0)


def written(directory: Path, content: str) -> Path:
    path = directory / "plan.json"
    path.write_text(content)
    return path


def test_a_plan_is_the_json_of_the_znode(tmp_path):
    plan = {TP: (4, 5, 6), TopicPartition("t", 1): (5, 6)}
    text = plan_text(plan)
    assert read_plan(written(tmp_path, text)) == plan
    assert ReassignPartitionsZNode.decode(text.encode()).target_replicas == plan


def test_a_plan_may_say_in_which_folders_replicas_lie(tmp_path):
    item = '{"topic": "t", "partition": 0, "replicas": [4, 5, 6], "log_dirs": %s}'
    plan = '{"partitions": [%s, {"topic": "t", "partition": 1, "replicas": [4]}]}'

    def read(text: str):
        return read_log_dirs(written(tmp_path, plan % (item % text)))

    assert read('["/a", "any", "/b"]') == {4: {TP: "/a"}, 6: {TP: "/b"}}
    assert read('["any", "any", "any"]') == {}
    for wrong, message in (
        ('["/a"]', "has 1 entries for 3 replicas"),
        ('["/a", "b", "any"]', "absolute paths or \"any\", not 'b'"),
        ('["/a", 7, "any"]', "not 7"),
        ("{}", "'log_dirs' that is a list"),
    ):
        with pytest.raises(CommandError, match=message):
            read(wrong)


def test_topics_and_partitions_are_read(tmp_path):
    topics = written(tmp_path, '{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}')
    assert read_topics(topics) == ["a", "b"]
    partitions = written(tmp_path, '{"partitions": [{"topic": "t", "partition": 0}]}')
    assert read_partitions(partitions) == [TP]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rubbish", "is no JSON"),
        ("[]", 'must be an object with a list "partitions"'),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [7]}', "an entry 7 has no 'topic' that is a string"),
        ('{"partitions": [{"topic": "t"}]}', "has no 'partition' that is a whole number"),
        ('{"partitions": [{"topic": "t", "partition": true}]}', "no 'partition'"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "no 'replicas' that is a list"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
            "'replicas' of t-0 must be a list of broker ids",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "t-0 names a broker twice: [1, 1]",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
    ],
)
def test_a_damaged_plan_is_told_in_one_line(tmp_path, content, message):
    with pytest.raises(CommandError) as caught:
        read_plan(written(tmp_path, content))
    assert message in str(caught.value)
    assert "plan.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "4,", "4,x", "4,4", "-1"])
def test_a_broker_list_that_is_none_is_wrong_usage(text):
    with pytest.raises(UsageError):
        broker_list(text)
    assert broker_list("4, 5,6") == [4, 5, 6]


def test_the_plan_text_is_one_line_of_json():
    assert json.loads(plan_text({TP: (1,)}))["version"] == 1
    assert "\n" not in plan_text({TP: (1,)})
