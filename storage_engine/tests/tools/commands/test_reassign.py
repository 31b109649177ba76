"""R-TOOL3, R-TOOL4: plans as files, proposals, and what `verify` says of a partition."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.admin.reassignment import Ongoing
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition
from storage_engine.tools.cli import main
from storage_engine.tools.commands.reassign import progress, propose
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.reassign_log_dirs import DONE, FAILED, MOVING
from storage_engine.tools.reassign_plan import (
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


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path, capsys):
    plan = str(tmp_path / "none.json")
    arguments = ["--bootstrap-server", "127.0.0.1:1", "--reassignment-json-file", plan]
    assert main(["reassign", "verify", *arguments]) == 1
    assert capsys.readouterr().err == f"headrace: {plan}: No such file or directory\n"


@pytest.mark.parametrize("text", ["", "4,", "4,x", "4,4", "-1"])
def test_a_broker_list_that_is_none_is_wrong_usage(text):
    with pytest.raises(UsageError):
        broker_list(text)
    assert broker_list("4, 5,6") == [4, 5, 6]


@given(st.integers(1, 12), st.integers(1, 4), st.sets(st.integers(0, 50), min_size=4, max_size=9))
def test_a_proposal_spreads_all_partitions_over_the_brokers(partitions, factor, brokers):
    current = {TopicPartition("t", p): tuple(range(100, 100 + factor)) for p in range(partitions)}
    racks = {BrokerId(b): None for b in brokers}
    proposed = propose(current, racks)
    assert proposed.keys() == current.keys()
    preferred = [replicas[0] for replicas in proposed.values()]
    for replicas in proposed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers
    counts = [preferred.count(b) for b in brokers]
    assert max(counts) - min(counts) <= 1


def test_too_few_brokers_for_a_proposal_are_told():
    with pytest.raises(KafkaError, match="replication factor"):
        propose({TP: (1, 2, 3)}, {BrokerId(4): None})


def view(replicas, isr, live=(1, 2, 3, 4, 5, 6)) -> ClusterMetadata:
    partition = MetadataPartition(partition=0, leader=isr[0], replicas=replicas, isr=isr)
    return ClusterMetadata(
        brokers={b: MetadataBroker(broker_id=b, host="h", port=1) for b in live},
        topics={
            "t": TopicMetadata(
                topic="t",
                topic_id=UUID(int=1),
                is_internal=False,
                partitions={0: partition},
            )
        },
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "moving", "expected"),
    [
        ((4, 5), (4, 5), (4, 5), False, (DONE, "")),
        ((5, 4), (4, 5), (4, 5), False, (FAILED, "replicas are 5, 4")),
        ((1, 2, 4, 5), (1, 2), (1, 2, 4, 5), True, (MOVING, "not in sync yet: 4, 5")),
        ((1, 2, 4, 5), (1, 2, 4), (1, 2, 4), True, (MOVING, "waits for dead brokers 5")),
        ((1, 2, 4, 5), (1, 4, 5), (1, 4, 5), True, (MOVING, "old replicas are being deleted")),
    ],
)
def test_verify_says_what_is_missing(replicas, isr, live, moving, expected):
    ongoing = Ongoing(replicas, (4, 5), (1, 2)) if moving else None
    assert progress(TP, (4, 5), view(replicas, isr, live), ongoing) == expected


def test_verify_knows_a_partition_that_is_not_there():
    assert progress(TopicPartition("u", 0), (1,), view((1,), (1,)), None)[0] == FAILED


def test_the_plan_text_is_one_line_of_json():
    assert json.loads(plan_text({TP: (1,)}))["version"] == 1
    assert "\n" not in plan_text({TP: (1,)})
