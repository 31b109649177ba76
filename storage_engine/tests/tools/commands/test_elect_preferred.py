"""`headrace elect-preferred`: what it says of each partition, and when it fails."""

import json

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages.elect_leaders import ElectLeadersResponse
from storage_engine.tools.cli import main

Result = ElectLeadersResponse.ReplicaElectionResult


class Elections:
    """The controller's answer; and the partitions that it was asked for, None for all."""

    def __init__(self, fake) -> None:
        self.bootstrap_server = fake.bootstrap_servers
        self.codes: list[ErrorCode] = []
        self.asked: list[tuple[str, list[int]]] | None = []
        fake.admin = self._answer

    def _answer(self, _broker, _api, request):
        topics = request.topic_partitions
        self.asked = None if topics is None else [(each.topic, each.partitions) for each in topics]
        rows = [
            Result.PartitionResult(partition_id=number, error_code=code, error_message=None)
            for number, code in enumerate(self.codes)
        ]
        found = [Result(topic="t", partition_result=rows)] if rows else []
        return ElectLeadersResponse(error_code=0, replica_election_results=found)

    def run(self, *arguments: str) -> int:
        return main(["elect-preferred", "--bootstrap-server", self.bootstrap_server, *arguments])


@pytest.fixture
def elections(fake) -> Elections:
    return Elections(fake)


def test_partitions_that_need_no_election_are_no_failure(elections, capsys):
    elections.codes = [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
    assert elections.run("--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in rows] == ["elected", "led by it already"]
    assert elections.asked is None


def test_the_partitions_that_are_not_led_by_it_are_named_after_the_table(elections, capsys):
    elections.codes = [ErrorCode.NONE, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert elections.run() == 1
    output, errors = capsys.readouterr()
    assert len(output.splitlines()) == 3
    assert "must be alive and in sync: t-1" in errors and errors.count("\n") == 1


def test_where_all_lead_already_it_says_so(elections, capsys):
    assert elections.run() == 0
    assert capsys.readouterr().out == "every partition is led by its preferred replica already\n"
    assert elections.run("--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_file_limits_the_election(elections, tmp_path):
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 3}]}')
    assert elections.run("--json-file", str(file)) == 0
    assert elections.asked == [("t", [3])]
