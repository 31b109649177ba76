"""A group goes from one protocol to the other while it works, wholly or not at all. Source:
KIP-848, KAFKA-18134."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer_protocol import read_assignment, write_assignment
from storage_engine.core.groups.settings import MigrationPolicy
from storage_engine.tests.core.groups.consumer.consumer_bench import Client, numbers
from storage_engine.tests.core.groups.group_bench import G, caller, subscription
from storage_engine.tests.core.groups.migration_bench import (
    AT_ONCE,
    T0,
    MigrationBench,
    cooperative,
    policy,
)


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
    bench = MigrationBench(**AT_ONCE)
    bench.classic()
    new = Client(bench, "new")
    new.turn()
    bench.coordinator._consumer._migration._settings = replace(bench.settings, **policy(value))
    new.leave()
    assert isinstance(bench.group(), ConsumerGroup)


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
