"""A group goes from one protocol to the other while it works, wholly or not at all. Source:
KIP-848, KAFKA-18134."""

import struct
from dataclasses import replace

import pytest

from storage_engine.core.coordinator_log import AppendRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups import migration
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer_protocol import read_assignment, write_assignment
from storage_engine.core.groups.events import (
    CheckDeadlines,
    DeleteGroup,
    DeleteOffsets,
    Joined,
    Leave,
    MemberHeartbeat,
    ReadOffsets,
)
from storage_engine.core.groups.settings import ConsumerSettings, MigrationPolicy
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.consumer.consumer_bench import Client, ConsumerBench, numbers
from storage_engine.tests.core.groups.group_bench import G, caller, subscription

AT_ONCE = {"initial_delay_ms": 0}
T0 = TopicPartition("t", 0)


def policy(value: MigrationPolicy) -> dict[str, ConsumerSettings]:
    return {"consumer": ConsumerSettings(migration_policy=value)}


def cooperative(*topics: str, owned=()) -> bytes:
    """The subscription of version 1, with the partitions of "t" that the member has."""
    data = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    data += struct.pack(">i", -1)
    data += struct.pack(">i", 1) + struct.pack(">h", 1) + b"t"
    return data + struct.pack(f">i{len(owned)}i", len(owned), *owned)


class MigrationBench(ConsumerBench):
    """Keeps the records of the last step."""

    def _run(self, effects):
        effects = list(effects)
        self.last = [each for each in effects if isinstance(each, AppendRecord)] or getattr(
            self, "last", []
        )
        super()._run(effects)

    def classic(self, count: int = 2, user_data: bytes = b"") -> list:
        """A stable group by the classic protocol, whose members share the partitions of "t"."""
        rebalances = self.coordinator._rebalances
        rebalances._settings = replace(self.settings, initial_delay_ms=100)
        requests = [self.enter()[1] for _ in range(count)]
        self.advance(200)
        rebalances._settings = self.settings
        members = [self.joined(request) for request in requests]
        leader = members[0].leader
        parts = {}
        for number, each in enumerate(members):
            mine = [p for p in range(4) if p % count == number]
            data = write_assignment(0, {"t": mine})
            if user_data:
                data = data[:-4] + struct.pack(">i", len(user_data)) + user_data
            parts[each.member_id] = data
        for each in sorted(members, key=lambda each: each.member_id != leader):
            self.sync(each, parts if each.member_id == leader else {})
        assert self.group().state is GroupState.STABLE
        return members


def test_a_group_whose_members_share_all_becomes_a_consumer_group_with_the_first_such_member():
    bench = MigrationBench(**AT_ONCE)
    first, second = bench.classic()
    answer = bench.enter_group("new")
    group = bench.consumer_group()
    assert answer.error is ErrorCode.NONE and answer.member_epoch == first.generation + 1
    assert {*group.members} == {first.member_id, second.member_id, "new"}
    assert group.classic_count == 2
    assert numbers(answer.assignment) == [], "the others have not given up anything"


def test_a_conversion_is_one_batch():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    bench.enter_group("new", replicate=False)
    first, *others = bench.last
    assert first.entry[1] is None and not first.with_last
    of_new = [n for n, each in enumerate(bench.last) if "'new'" in repr(each.entry[0])]
    assert of_new[0] == 1 + 2 + 2 * 3, "a tombstone, two epochs, three records a member"
    assert all(each.with_last for each in others[: of_new[0] - 1])


def test_classic_members_join_again_and_reach_their_targets():
    bench = MigrationBench(**AT_ONCE)
    first, second = bench.classic()
    new = Client(bench, "new")
    new.turn()
    generations = {}
    for each in (first, second):
        assert bench.heartbeat(each.member_id, each.generation) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = bench.joined(bench.join(each.member_id))
        generations[each.member_id] = joined
        found = read_assignment(bench.synced(bench.sync(joined)))
        assert found is not None
    new.turn()
    assert bench.state() == "Stable"
    assert len(numbers(new.owned)) >= 1
    for member_id, joined in generations.items():
        assert bench.heartbeat(member_id, joined.generation) is ErrorCode.NONE


def test_a_cooperative_member_keeps_what_it_goes_on_to_have():
    bench = MigrationBench(**AT_ONCE)
    (only,) = bench.classic(1)
    new = Client(bench, "new")
    new.turn()
    protocols = (("range", cooperative("t", owned=[0, 1, 2, 3])),)
    joined = bench.joined(bench.join(only.member_id, protocols=protocols))
    kept = read_assignment(bench.synced(bench.sync(joined)))
    assert kept is not None and len(kept.partitions["t"]) == 2
    assert bench.heartbeat(only.member_id, joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not numbers(new.turn().assignment or {}), "they are not given up yet"
    protocols = (("range", cooperative("t", owned=sorted(kept.partitions["t"]))),)
    joined = bench.joined(bench.join(only.member_id, protocols=protocols))
    bench.synced(bench.sync(joined))
    new.turn()
    assert bench.state() == "Stable" and len(numbers(new.owned)) == 2


def test_a_classic_members_generation_is_checked_on_each_commit():
    bench = MigrationBench(**AT_ONCE)
    first, _ = bench.classic()
    bench.enter_group("new")
    assert bench.error(bench.commit({T0: 1}, caller(first))) is ErrorCode.NONE
    joined = bench.joined(bench.join(first.member_id))
    assert bench.error(bench.commit({T0: 2}, caller(first))) is ErrorCode.ILLEGAL_GENERATION
    assert bench.error(bench.commit({T0: 2}, caller(joined))) is ErrorCode.NONE


def test_a_classic_member_that_does_not_join_again_in_time_is_removed():
    bench = MigrationBench(**AT_ONCE)
    first, _ = bench.classic()
    new = Client(bench, "new")
    for _ in range(13):
        bench.heartbeat(first.member_id, first.generation)
        new.turn()
        bench.advance(5_000)
    assert first.member_id not in bench.consumer_group().members


def test_a_group_is_a_classic_one_again_when_the_last_other_member_leaves():
    bench = MigrationBench(**AT_ONCE)
    first, second = bench.classic()
    new = Client(bench, "new")
    new.turn()
    joined = [bench.joined(bench.join(each.member_id)) for each in (first, second)]
    assert new.leave() is ErrorCode.NONE
    group = bench.group()
    assert isinstance(group, ClassicGroup)
    assert {*group.members} == {first.member_id, second.member_id}
    code = bench.heartbeat(first.member_id, group.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    again = [bench.join(each.member_id) for each in joined]
    assert {bench.joined(each).generation for each in again} == {group.generation}


def test_a_conversion_back_is_one_batch_and_survives_a_failover():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    new.leave()
    first, *others = bench.last
    assert not first.with_last and all(each.with_last for each in others)
    bench.fail_over()
    group = bench.group()
    assert isinstance(group, ClassicGroup) and len(group.members) == 2
    for member in group.members.values():
        assert read_assignment(member.assignment)
        code = bench.heartbeat(member.member_id, group.generation)
        assert code is ErrorCode.REBALANCE_IN_PROGRESS, "the partitions of the other are free"


@pytest.mark.parametrize("value", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_policy_may_forbid_to_become_a_consumer_group(value):
    bench = MigrationBench(**AT_ONCE, **policy(value))
    bench.classic()
    assert bench.code(bench.enter_group("new")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(bench.group(), ClassicGroup)


@pytest.mark.parametrize("value", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_a_policy_may_forbid_to_become_a_classic_group(value):
    bench = MigrationBench(**AT_ONCE, **policy(MigrationPolicy.UPGRADE))
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    new.leave()
    assert isinstance(bench.group(), ConsumerGroup)
    assert value is not MigrationPolicy.BIDIRECTIONAL


def test_an_assignor_with_data_of_its_own_is_not_lost():
    bench = MigrationBench(**AT_ONCE)
    bench.classic(user_data=b"mine")
    answer = bench.enter_group("new")
    assert bench.code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    assert "assignor" in answer.message
    assert isinstance(bench.group(), ClassicGroup)


def test_a_group_of_another_kind_of_client_stays_what_it_is():
    bench = MigrationBench(**AT_ONCE)
    bench.joined(bench.enter(protocol_type="connect")[1])
    assert bench.code(bench.enter_group("new")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_is_replaced_whatever_the_policy_and_keeps_its_offsets():
    bench = MigrationBench(**AT_ONCE, **policy(MigrationPolicy.DISABLED))
    bench.commit({T0: 7})
    (first,) = bench.classic(1)
    bench.leave(caller(first))
    assert bench.enter_group("new").error is ErrorCode.NONE
    assert bench.offsets() == {T0: 7}
    bench.fail_over()
    assert isinstance(bench.group(), ConsumerGroup) and bench.offsets() == {T0: 7}
    bench.beat("new", -1)
    assert bench.joined(bench.enter()[1]).generation == 1
    assert isinstance(bench.group(), ClassicGroup) and bench.offsets() == {T0: 7}


def test_a_static_member_may_come_back_by_the_other_protocol():
    bench = MigrationBench(**AT_ONCE)
    first = bench.joined(bench.join(instance_id="s"))
    bench.sync(first, {first.member_id: write_assignment(0, {"t": [0, 1, 2, 3]})}, instance_id="s")
    answer = bench.enter_group("new", instance_id="s")
    assert numbers(answer.assignment) == [0, 1, 2, 3]
    group = bench.consumer_group()
    assert [*group.members] == ["new"] and group.classic_count == 0
    code = bench.heartbeat(first.member_id, first.generation, "s")
    assert code is ErrorCode.FENCED_INSTANCE_ID


def test_waiting_members_are_told_to_join_again():
    bench = MigrationBench(**AT_ONCE)
    first, second = bench.classic()
    waits = bench.join(first.member_id, protocols=(("range", subscription("t", "u")),))
    assert waits not in bench.answers
    bench.enter_group("new")
    assert bench.error(waits) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.member_id in bench.consumer_group().members


def test_a_heartbeat_to_a_classic_group_finds_no_consumer_group():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    assert bench.code(bench.beat("new", 3)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_failover_in_the_middle_of_a_migration_changes_nothing():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    before = bench.consumer_group().content
    bench.fail_over()
    assert bench.consumer_group().content == before
    assert bench.coordinator.groups[G].size == 3


# --- large groups ---


@pytest.fixture
def in_pieces(monkeypatch):
    """Two members are as many as are converted at once."""
    monkeypatch.setattr(migration, "AT_ONCE", 2)


def commit_of(bench, value: int, by: Joined) -> int:
    return bench.commit({T0: value}, caller(by))


def asks(event_class, **fields):
    """An event about the group, by its first member where it has one."""

    def ask(bench, by: Joined) -> int:
        own = {"caller": caller(by), "at": bench.at} if event_class is MemberHeartbeat else {}
        return bench.ask(lambda request: event_class(request=request, group_id=G, **fields, **own))

    return ask


@pytest.mark.usefixtures("in_pieces")
def test_only_those_that_enter_or_leave_wait_while_a_group_is_converted():
    bench = MigrationBench(**AT_ONCE)
    first, second, *_ = bench.classic(5)
    assert bench.enter_group("new") is None
    joins = bench.requests
    leaves = asks(Leave, members=(caller(second),), at=bench.at)(bench, second)
    other = bench.enter_group("a", group_id="other")
    assert other.error is ErrorCode.NONE, "other groups go on"
    assert not {joins, leaves} & {*bench.answers}
    bench.advance(0)
    bench.replicate()
    assert bench.answers[joins].member_epoch == first.generation + 1
    assert bench.error(leaves) is ErrorCode.NONE
    group = bench.consumer_group()
    assert group.size == 5 and second.member_id not in group.members
    assert bench.beat("new", bench.answers[joins].member_epoch).error is ErrorCode.NONE


ASKED_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda bench, by: commit_of(bench, 7, by), ASKED_AGAIN),
        (lambda bench, by: bench.commit({T0: 7}, caller(by), producer=(1, 0)), ASKED_AGAIN),
        (lambda bench, by: bench.join(by.member_id), ASKED_AGAIN),
        (lambda bench, by: bench.sync(by), ErrorCode.REBALANCE_IN_PROGRESS),
        (asks(MemberHeartbeat), ErrorCode.NONE),
        (asks(ReadOffsets, partitions=None), ASKED_AGAIN),
        (asks(DeleteOffsets, partitions=[T0]), ASKED_AGAIN),
        (asks(DeleteGroup), ASKED_AGAIN),
    ],
    ids=["commit", "transaction", "join", "sync", "heartbeat", "read", "offsets", "group"],
)
def test_clients_are_told_to_ask_again_while_a_group_is_converted(ask, told):
    bench = MigrationBench(**AT_ONCE)
    first, *_ = bench.classic(5)
    bench.enter_group("new")
    asked = ask(bench, first)
    assert bench.error(asked) is told
    bench.advance(0)
    bench.replicate()
    group = bench.consumer_group()
    assert group.size == 6 and not group.offsets
    again = ask(bench, first)
    assert bench.error(again) is not ASKED_AGAIN


@pytest.mark.usefixtures("in_pieces")
def test_a_heartbeat_of_the_consumer_protocol_is_asked_for_again_while_a_group_is_converted():
    bench = MigrationBench(**AT_ONCE)
    bench.classic(5)
    bench.enter_group("new")
    assert bench.enter_group("newer").error is ASKED_AGAIN
    bench.advance(0)
    bench.replicate()
    assert bench.code(bench.enter_group("newer")) is ErrorCode.NONE
    assert bench.consumer_group().size == 7


@pytest.mark.usefixtures("in_pieces")
def test_a_large_conversion_is_one_batch():
    bench = MigrationBench(**AT_ONCE)
    bench.classic(5)
    before = len(bench.log)
    bench.enter_group("new")
    steps = []
    while bench.coordinator._consumer.has_work:
        known = len(bench.log)
        bench.step(CheckDeadlines(at=bench.at))
        if len(bench.log) > known:
            steps.append([each.with_last for each in bench.last])
    conversion, *_ = steps
    assert conversion == [False] + [True] * (2 + 3 * 5)
    assert len(bench.log) > before


@pytest.mark.usefixtures("in_pieces")
def test_a_failover_in_the_middle_of_a_large_conversion_finds_the_former_group():
    bench = MigrationBench(**AT_ONCE)
    bench.classic(5)
    bench.enter_group("new")
    bench.step(CheckDeadlines(at=bench.at))
    bench.fail_over()
    assert isinstance(bench.group(), ClassicGroup) and bench.group().size == 5
    bench.enter_group("new")
    bench.advance(0)
    assert bench.consumer_group().size == 6


@pytest.mark.usefixtures("in_pieces")
def test_a_large_group_that_can_not_be_converted_goes_on():
    bench = MigrationBench(**AT_ONCE)
    first, *_ = bench.classic(5, user_data=b"mine")
    bench.enter_group("new")
    request = bench.requests
    commit = commit_of(bench, 7, first)
    bench.advance(0)
    bench.replicate()
    assert bench.code(bench.answers[request]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.error(commit) is ASKED_AGAIN
    assert bench.error(commit_of(bench, 7, first)) is ErrorCode.NONE
    assert isinstance(bench.group(), ClassicGroup)


@pytest.mark.usefixtures("in_pieces")
def test_a_large_group_becomes_a_classic_one_in_pieces_too():
    bench = MigrationBench(**AT_ONCE)
    first, *_ = bench.classic(5)
    bench.enter_group("new")
    bench.advance(0)
    assert bench.beat("new", -1) is None
    leaves = bench.requests
    commit = commit_of(bench, 7, first)
    bench.advance(0)
    bench.replicate()
    assert bench.error(leaves) is ErrorCode.NONE
    assert bench.error(commit) is ASKED_AGAIN
    again = commit_of(bench, 7, first)
    assert bench.error(again) is ErrorCode.ILLEGAL_GENERATION, "the group has another by now"
    assert isinstance(bench.group(), ClassicGroup) and bench.group().size == 5


@pytest.mark.usefixtures("in_pieces")
def test_sessions_that_end_while_a_group_is_converted_end_afterwards():
    bench = MigrationBench(**AT_ONCE)
    bench.classic(5)
    bench.enter_group("new")
    bench.now_ms += 60_000
    bench.step(CheckDeadlines(at=bench.at))
    assert bench.group().size == 5
    bench.advance(70_000)
    assert bench.state() == "Empty"


def test_a_group_that_is_too_large_for_one_batch_stays_what_it_is():
    bench = MigrationBench(**AT_ONCE, record_max_bytes=1_000)
    bench.classic()
    answer = bench.enter_group("new")
    assert bench.code(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    assert "too many" in answer.message
    assert isinstance(bench.group(), ClassicGroup)


def test_a_group_that_is_too_large_to_become_classic_goes_on_without_the_member():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    bench.coordinator._consumer._migration._settings = replace(bench.settings, record_max_bytes=100)
    assert new.leave() is ErrorCode.NONE
    group = bench.consumer_group()
    assert group.size == group.classic_count == 2
    assert group.epoch == group.target_epoch, "the partitions of the member are given to others"


def test_a_classic_member_takes_a_static_place_in_a_group_that_is_too_large_to_be_classic():
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    Client(bench, "new", instance_id="s").turn()
    migration_of = bench.coordinator._consumer._migration
    migration_of._settings = replace(bench.settings, record_max_bytes=100)
    joined = bench.joined(bench.join(instance_id="s"))
    group = bench.consumer_group()
    assert group.size == group.classic_count == 3 and joined.member_id in group.members


def test_a_group_with_too_many_members_for_the_other_kind_stays_what_it_is():
    few = {"consumer": ConsumerSettings(max_size=2)}
    bench = MigrationBench(**AT_ONCE, **few)
    bench.classic()
    assert bench.code(bench.enter_group("new")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    bench.coordinator._consumer._migration._settings = replace(bench.settings, max_size=1)
    new.leave()
    assert isinstance(bench.group(), ConsumerGroup)


def test_a_member_that_may_hold_partitions_of_the_last_generation_keeps_them():
    bench = MigrationBench(**AT_ONCE)
    (only,) = bench.classic(1)
    protocols = (("range", cooperative("t", owned=[0, 1, 2, 3])),)
    rejoined = bench.joined(bench.join(only.member_id, protocols=protocols))
    assert bench.group().state is GroupState.COMPLETING and rejoined.generation == 2
    answer = bench.enter_group("new")
    assert numbers(answer.assignment) == [], "the other still reads them"
    current = bench.consumer_group().current(only.member_id)
    assert numbers(current.assigned) == [0, 1, 2, 3]


def test_a_partition_that_two_members_claim_goes_to_one():
    bench = MigrationBench(**AT_ONCE)
    first, second = bench.classic()
    group = bench.group()
    for member in group.members.values():
        member.assignment = write_assignment(0, {"t": [0, 1, 2, 3]})
    bench.enter_group("new")
    group = bench.consumer_group()
    held = [numbers(group.current(each.member_id).assigned) for each in (first, second)]
    assert sorted(held) == [[], [0, 1, 2, 3]]
