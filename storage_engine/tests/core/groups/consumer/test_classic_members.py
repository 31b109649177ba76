"""Members of the classic protocol in a consumer group."""

import struct

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.consumer_protocol import read_assignment
from storage_engine.core.groups.events import RequestingMember
from storage_engine.tests.core.groups.consumer.consumer_bench import Client, ConsumerBench, shapes
from storage_engine.tests.core.groups.group_bench import SESSION_MS, caller, subscription


def with_consumer(**settings) -> tuple[ConsumerBench, Client]:
    bench = ConsumerBench(**settings)
    (client,) = bench.members("new")
    return bench, client


def parts(bench: ConsumerBench, joined) -> list[int]:
    found = read_assignment(bench.synced(bench.sync(joined)))
    assert found is not None
    return sorted(found.partitions.get("t", ()))


def test_a_classic_member_joins_a_consumer_group_with_the_id_that_it_is_given():
    bench, client = with_consumer()
    member_id, request = bench.enter()
    joined = bench.joined(request)
    assert (joined.member_id, joined.protocol, joined.leader) == (member_id, "range", "")
    assert parts(bench, joined) == []
    client.turn()
    client.turn()
    assert bench.heartbeat(member_id, joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = bench.joined(bench.join(member_id))
    assert len(parts(bench, joined)) == 2
    assert bench.heartbeat(member_id, joined.generation) is ErrorCode.NONE


def test_a_classic_member_hears_by_its_own_heartbeat_that_another_has_left():
    bench, client = with_consumer()
    other = Client(bench, "other")
    bench.settle([client, other])
    member_id, request = bench.enter()
    bench.synced(bench.sync(bench.joined(request)))
    for each in (client, other) * 3:
        each.turn()
    joined = bench.joined(bench.join(member_id))
    assert len(parts(bench, joined)) == 1
    assert bench.heartbeat(member_id, joined.generation) is ErrorCode.NONE
    other.leave()
    assert bench.heartbeat(member_id, joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"\0"),)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (("range", struct.pack(">hi", 0, 10_001)),)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (("range", bytes(2 << 20)),)}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": (("range", subscription("t")), ("own", bytes(5 << 20)))},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "x", "instance_id": "s"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_can_not_join_is_told_why(how, code):
    bench, _ = with_consumer()
    assert bench.error(bench.join(how.pop("member_id", ""), **how)) is code
    assert bench.consumer_group().classic_count == 0


def test_the_protocols_of_all_classic_members_are_bounded():
    bench, _ = with_consumer()
    large = (("range", subscription("t")), ("own", bytes(4_000_000)))
    codes = [bench.error(bench.join(instance_id=f"s{n}", protocols=large)) for n in range(20)]
    assert codes.count(ErrorCode.NONE) == (64 << 20) // 4_000_100
    assert codes[-1] is ErrorCode.INVALID_REQUEST
    again = bench.join(instance_id="s0", protocols=large)
    assert bench.error(again) is ErrorCode.NONE, "its own place is free"


def test_classic_members_need_a_protocol_in_common():
    bench, _ = with_consumer()
    bench.enter(protocols=(("a", subscription("t")), ("b", subscription("t"))))
    request = bench.join(protocols=(("c", subscription("t")),))
    assert bench.error(request) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    bench.joined(bench.enter(protocols=(("b", subscription("t")),))[1])


def test_a_member_of_the_other_protocol_is_not_known_to_classic_requests():
    bench, client = with_consumer()
    me = RequestingMember(member_id="new", generation=client.epoch)
    assert bench.heartbeat("new", client.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave(me) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert bench.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_than_the_members_epoch_is_illegal():
    bench, _ = with_consumer()
    joined = bench.joined(bench.enter()[1])
    code = bench.heartbeat(joined.member_id, joined.generation + 1)
    assert code is ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_is_removed_when_its_session_ends():
    bench, client = with_consumer()
    joined = bench.joined(bench.enter()[1])
    parts(bench, joined)
    for _ in range(SESSION_MS // 2_000):
        client.turn()
        bench.advance(2_000)
    assert joined.member_id not in bench.consumer_group().members
    assert len(client.turn().assignment or client.owned) == 1


def test_a_classic_member_that_does_not_sync_in_time_is_removed():
    bench, client = with_consumer()
    joined = bench.joined(bench.enter(session_timeout_ms=1_800_000)[1])
    for _ in range(13):
        client.turn()
        bench.advance(5_000)
    assert joined.member_id not in bench.consumer_group().members


def test_a_classic_member_leaves_and_is_not_left_twice():
    bench, client = with_consumer()
    joined = bench.joined(bench.enter()[1])
    codes = bench.leave(caller(joined), caller(joined))
    assert codes == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    client.turn()
    assert bench.state() == "Stable"


def test_an_operator_removes_a_static_member_by_its_instance_id():
    bench, _ = with_consumer()
    bench.joined(bench.join(instance_id="s"))
    assert bench.leave(RequestingMember(instance_id="s")) == (ErrorCode.NONE,)
    assert bench.consumer_group().classic_count == 0


def test_a_static_classic_member_is_replaced_and_its_former_self_fenced():
    bench, client = with_consumer()
    first = bench.joined(bench.join(instance_id="s"))
    client.turn()
    second = bench.joined(bench.join(instance_id="s"))
    assert second.member_id != first.member_id
    code = bench.heartbeat(first.member_id, first.generation, "s")
    assert code is ErrorCode.FENCED_INSTANCE_ID


def test_the_last_member_of_the_other_protocol_is_replaced_by_a_classic_one():
    bench = ConsumerBench(initial_delay_ms=0)
    bench.members("s1", instance_id="s")
    other = bench.joined(bench.enter()[1])
    waits = bench.join(instance_id="s")
    assert isinstance(bench.group(), ClassicGroup)
    again = bench.join(other.member_id)
    joined = bench.joined(waits)
    assert joined.generation == bench.joined(again).generation > other.generation


def test_partitions_of_topics_that_are_gone_are_not_told():
    bench, client = with_consumer()
    client.leave()
    (client,) = bench.members("other")
    joined = bench.joined(bench.enter(protocols=(("range", subscription("t", "u")),))[1])
    bench.tell_topics(shapes(u=1))
    joined = bench.joined(
        bench.join(joined.member_id, protocols=(("range", subscription("t", "u")),))
    )
    assert parts(bench, joined) == []


def test_nobody_joins_before_the_topics_are_known():
    bench, _ = with_consumer()
    bench.tells_topics = False
    bench.fail_over()
    assert bench.error(bench.join()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_waiting_for_partitions_of_others_is_no_reason_to_join_again():
    bench, client = with_consumer()
    joined = bench.joined(bench.enter()[1])
    parts(bench, joined)
    assert bench.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
    client.turn()
    assert bench.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
    client.turn()
    code = bench.heartbeat(joined.member_id, joined.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
