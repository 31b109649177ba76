"""Large groups go from one protocol to the other in pieces, and those that are too large stay what
they are. Source: KIP-848, KAFKA-18134."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups import migration
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.events import (
    CheckDeadlines,
    DeleteGroup,
    DeleteOffsets,
    Joined,
    Leave,
    MemberHeartbeat,
    ReadOffsets,
)
from storage_engine.core.groups.settings import ConsumerSettings
from storage_engine.tests.core.groups.consumer.consumer_bench import Client
from storage_engine.tests.core.groups.group_bench import G, caller
from storage_engine.tests.core.groups.migration_bench import AT_ONCE, T0, MigrationBench


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
    other = next(iter(group.members))
    bench.heartbeat(other, group.current(other).member_epoch)
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
