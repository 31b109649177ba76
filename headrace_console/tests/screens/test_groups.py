"""The list of groups counts the members of both types, each asked for in its own way."""

from typing import Any

from headrace_console.paging import Page
from headrace_console.screens.groups import group_list
from headrace_console.tests.made_snapshots import snapshot
from storage_engine.client.connection import NotServedError
from storage_engine.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedMember,
)
from storage_engine.protocol.messages.describe_groups import DescribeGroupsResponse
from storage_engine.protocol.messages.list_groups import ListGroupsResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchResponse

Listed = ListGroupsResponse.ListedGroup
Classic = DescribeGroupsResponse.DescribedGroup
Stored = OffsetFetchResponse.OffsetFetchResponseGroup


def _members(name, count):
    rows = [DescribedMember(member_id=f"m{number}") for number in range(count)]
    return DescribedConsumerGroup(group_id=name, members=rows)


class Lines:
    """One broker with these groups: their types by their names."""

    def __init__(self, types, *, describes_consumer_groups=True):
        self.types = types
        self.describes_consumer_groups = describes_consumer_groups
        self.asked: list[str] = []

    def ask(self, questions, _addresses, *, timeout_ms):
        assert timeout_ms > 0
        return {
            broker: [self._answer(spec.name, message) for spec, message in asked]
            for broker, asked in questions.items()
            if broker == 1
        }

    def _answer(self, api, message):
        self.asked.append(api)
        match api:
            case "ListGroups":
                rows = [
                    Listed(group_id=name, group_state="Stable", group_type=each)
                    for name, each in self.types.items()
                ]
                return ListGroupsResponse(groups=rows)
            case "OffsetFetch":
                rows = [Stored(group_id=each.group_id) for each in message.groups]
                return OffsetFetchResponse(groups=rows)
            case "DescribeGroups":
                member = Classic.DescribedGroupMember(member_id="m")
                rows = [Classic(group_id=name, members=[member]) for name in message.groups]
                return DescribeGroupsResponse(groups=rows)
        assert api == "ConsumerGroupDescribe"
        if not self.describes_consumer_groups:
            return NotServedError("not at all")
        return ConsumerGroupDescribeResponse(
            groups=[_members(name, 2) for name in message.group_ids]
        )


def _rows(lines, **page):
    rows: Any = group_list(lines, snapshot(), Page(**page))["rows"]
    return [(row["group"], row["group_type"], row["members"]) for row in rows]


def test_members_of_groups_of_both_types_are_counted():
    lines = Lines({"new": "Consumer", "old": "Classic", "older": ""})
    assert _rows(lines) == [("new", "consumer", 2), ("old", "classic", 1), ("older", "classic", 1)]


def test_groups_can_be_sorted_by_their_type():
    lines = Lines({"a": "consumer", "b": "classic"})
    assert [name for name, _, _ in _rows(lines, sort="type")] == ["b", "a"]


def test_only_types_that_are_there_are_asked_for():
    lines = Lines({"old": "classic"})
    _rows(lines)
    assert lines.asked == ["ListGroups", "OffsetFetch", "DescribeGroups"]


def test_groups_whose_members_are_not_told_are_shown_without():
    lines = Lines({"new": "consumer", "old": "classic"}, describes_consumer_groups=False)
    assert _rows(lines) == [("new", "consumer", None), ("old", "classic", 1)]
