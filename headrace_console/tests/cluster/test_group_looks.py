"""Consumer groups as the watcher sees them."""

from typing import Any

import pytest

from headrace_console.cluster import group_looks
from headrace_console.cluster.group_looks import GroupLooks, header_of, written_ms
from headrace_console.cluster.snapshot import Ends
from headrace_console.tests.made_snapshots import snapshot
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.messages.list_groups import ListGroupsResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchResponse
from storage_engine.tests.client.support.batches import numbered_batch

TP = TopicPartition("t0", 0)
SEEN = snapshot(leader=1)
Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topic = Group.OffsetFetchResponseTopics


class Brokers:
    """Coordinators of groups, each with an offset in one partition."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(group_looks, "_SHARE", 0)  # Each look looks.
        self.groups = {"g": "Stable"}
        self.committed = {"g": 5}
        self.code = ErrorCode.NONE
        self.silent = False
        self.fetched: list[str] = []
        self.looks = GroupLooks(self._ask)

    def _ask(self, questions):
        return {
            broker: [self._answer(api.name, request) for api, request in each]
            for broker, each in questions.items()
        }

    def _answer(self, api: str, request: Any) -> Any:
        if self.silent:
            return HeadraceError("no answer")
        if api == "ListGroups":
            rows = [
                ListGroupsResponse.ListedGroup(
                    group_id=name, protocol_type="consumer", group_state=state
                )
                for name, state in self.groups.items()
            ]
            return ListGroupsResponse(error_code=self.code, groups=rows)
        if api == "OffsetFetch":
            names = [each.group_id for each in request.groups]
            self.fetched += names
            return OffsetFetchResponse(groups=[self._offsets(name) for name in names])
        return FetchResponse([FetchPartitionResponse(TP.topic, TP.partition, 0)])

    def _offsets(self, name: str) -> Group:
        row = Topic.OffsetFetchResponsePartitions(
            partition_index=TP.partition, committed_offset=self.committed.get(name, -1)
        )
        return Group(group_id=name, topics=[Topic(name=TP.topic, partitions=[row])])

    def look(self, end=9, at_ms=1_000, stable=None):
        return self.looks.look(SEEN.metadata, {TP: Ends(0, end, stable)}, [1], at_ms)


@pytest.fixture
def brokers(monkeypatch) -> Brokers:
    return Brokers(monkeypatch)


def test_a_group_has_its_lag_and_the_topics_in_which_it_has_offsets(brokers):
    seen = brokers.look()["g"]
    assert (seen.state, seen.coordinator, seen.lag) == ("Stable", 1, 4)
    assert (seen.topics, seen.had_members) == ({"t0"}, True)
    seen = brokers.look(at_ms=3_000)["g"]
    assert (seen.lag_ms, seen.sure_lag_ms, seen.worst) == (2_000, 2_000, TP)


def test_records_behind_an_open_transaction_are_lag_but_not_slowness(brokers):
    brokers.look(stable=5)
    seen = brokers.look(at_ms=9_000, stable=5)["g"]
    assert (seen.lag, seen.lag_ms) == (4, 0)


def test_a_group_without_offsets_is_seen_and_one_without_members_is_told_apart(brokers):
    brokers.groups = {"g": "Empty"}
    brokers.committed = {}
    seen = brokers.look()["g"]
    assert (seen.lag, seen.topics, seen.had_members) == (0, frozenset(), False)
    brokers.groups = {"g": "Stable"}
    brokers.look()
    brokers.groups = {"g": "Empty"}
    assert brokers.look()["g"].had_members, "it had some since the console began"


def test_groups_are_not_known_until_a_broker_has_listed_them_and_stay_while_none_answers(brokers):
    brokers.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert brokers.look() is None
    brokers.code = ErrorCode.NONE
    assert set(brokers.look()) == {"g"}
    brokers.silent = True
    assert set(brokers.look()) == {"g"}
    brokers.silent = False
    brokers.groups = {}
    assert brokers.look() == {}


def test_of_many_groups_each_look_asks_for_some_and_all_have_their_turn(brokers, monkeypatch):
    monkeypatch.setattr(group_looks, "MOST_ROWS", group_looks.UNKNOWN_ROWS)
    brokers.groups = dict.fromkeys("abc", "Stable")
    for _ in range(3):
        brokers.look()
    assert brokers.fetched == ["a", "b", "c"]


def test_a_batch_without_a_time_or_a_header_has_none():
    def told(records, code=0):
        return header_of(FetchPartitionResponse("t", 0, code, records=records))

    data = bytes(numbered_batch(1).data)
    header = told(data)
    assert header is not None and written_ms(header) is None
    assert told(None) is told(b"") is told(data[:20]) is told(data, 3) is written_ms(None) is None
