"""Groups that grow until their record is too large for the log: whoever would make it so is
refused, and the others go on."""

import random
from dataclasses import replace

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState, Member
from storage_engine.core.groups.classic.offers import Offer
from storage_engine.core.groups.events import Joined
from storage_engine.core.groups.records import GroupKey, GroupRecord
from storage_engine.protocol.state.group_records import encode_key, encode_record
from storage_engine.tests.core.groups.group_bench import SESSION_MS, G, GroupBench, subscription
from storage_engine.tests.sampling import seeds

LIMIT = 10_000
GATHER_MS = 100
SUBSCRIBED = subscription("t")


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench(initial_delay_ms=GATHER_MS, record_max_bytes=LIMIT)


def with_data(size: int) -> tuple[tuple[str, bytes], ...]:
    """A subscription to the same topic, and data of the assignor's."""
    return (("range", SUBSCRIBED + bytes(size)),)


def static(bench: GroupBench, *names: str, **how) -> list:
    """Static members that have joined; their answers, by which the first one leads."""
    requests = [bench.join(instance_id=name, **how) for name in names]
    bench.advance(10 * GATHER_MS)
    return [bench.joined(each) for each in requests]


def largest(bench: GroupBench) -> int:
    records = (each[1] for each in bench.log if len(each) == 3)
    return max((_size(record) for record in records if isinstance(record, GroupRecord)), default=0)


def _size(record: GroupRecord) -> int:
    return len(encode_key(GroupKey(G))) + len(encode_record(record))


@pytest.mark.parametrize("seed", seeds(20))
def test_the_size_told_is_that_of_the_record(seed):
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choice("abcä€😀") for _ in range(chance.randrange(20)))

    members = {}
    for number in range(chance.randrange(5)):
        member_id = f"{number}{text()}"
        members[member_id] = Member(
            member_id=member_id,
            instance_id=chance.choice([None, text()]),
            client_id=text(),
            client_host=text(),
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            offer=Offer([("range", chance.randbytes(9)), ("sticky", chance.randbytes(30))]),
            deadline_ms=0,
            assignment=chance.randbytes(chance.randrange(50)),
        )
    group = ClassicGroup(
        group_id=G,
        protocol_type=chance.choice([None, "consumer"]),
        protocol=chance.choice(["range", "sticky", None]),
        leader=next(iter(members), None),
        members=members,
    )
    parts = {each.member_id: each.assignment for each in members.values()}
    size = _size(group.to_record())
    assert group.bytes_with(parts) == size
    for member in members.values():
        others = group.sizes.members - member.most_bytes
        assert group.bytes_after(member, others) >= group.bytes_with({})


@pytest.mark.parametrize(
    "grows",
    [
        {"protocols": with_data(LIMIT // 2)},
        {"client_id": "ä" * (LIMIT // 4)},
        {"client_host": "h" * (LIMIT // 2)},
        {"fresh_member_id": "m" * (LIMIT // 3)},
        {"protocols": (("range", SUBSCRIBED), ("sticky", bytes(LIMIT // 2)))},
    ],
)
def test_members_join_until_the_groups_record_is_full(bench, grows):
    requests = []
    for number in range(3):
        how = dict(grows)
        if "fresh_member_id" in how:
            how["fresh_member_id"] += str(number)
        requests.append(bench.join(instance_id=f"i{number}", **how))
    small = bench.join(instance_id="small", protocols=(*with_data(0), ("sticky", b"")))
    bench.advance(10 * GATHER_MS)
    codes = [bench.error(each) for each in requests]
    assert codes == [ErrorCode.NONE] + [ErrorCode.INVALID_REQUEST] * 2
    assert bench.error(small) is ErrorCode.NONE
    leader = bench.joined(requests[0])
    assert bench.synced(bench.sync(leader, {leader.member_id: b"all"}, instance_id="i0")) == b"all"
    assert LIMIT // 2 < largest(bench) <= LIMIT or "sticky" in str(grows)


def test_a_static_member_that_comes_back_larger_is_refused_and_the_others_keep_their_parts(bench):
    first, second = static(bench, "a", "b")
    parts = {each.member_id: bytes(LIMIT // 4) for each in (first, second)}
    bench.sync(first, parts, instance_id="a")
    assert bench.group().state is GroupState.STABLE
    records = len(bench.log)
    refused = bench.join(instance_id="b", protocols=with_data(LIMIT // 2))
    assert bench.error(refused) is ErrorCode.INVALID_REQUEST
    assert (bench.group().state, len(bench.log)) == (GroupState.STABLE, records)
    assert bench.heartbeat(second.member_id, second.generation, instance_id="b") is ErrorCode.NONE
    back = bench.joined(bench.join(instance_id="b", protocols=with_data(LIMIT // 10)))
    assert bench.group().members[back.member_id].assignment == parts[second.member_id]
    assert len(bench.log) == records + 1
    assert largest(bench) <= LIMIT


def test_who_makes_the_record_no_larger_may_come_back_though_it_is_too_large(bench):
    """As after a broker that allowed more."""
    bench.settings = replace(bench.settings, record_max_bytes=2 * LIMIT)
    bench.fail_over()
    leader, _ = static(bench, "a", "b", protocols=with_data(LIMIT * 6 // 10))
    bench.sync(leader, {}, instance_id="a")
    bench.settings = replace(bench.settings, record_max_bytes=LIMIT)
    bench.fail_over()
    larger = bench.join(instance_id="b", protocols=with_data(LIMIT * 7 // 10))
    assert bench.error(larger) is ErrorCode.INVALID_REQUEST
    bench.joined(bench.join(instance_id="b", protocols=with_data(LIMIT * 6 // 10)))


def test_an_assignment_is_measured_with_all_ids(bench):
    (only,) = static(bench, "a" * (LIMIT // 2), client_id="c" * (LIMIT // 4))
    refused = bench.sync(only, {only.member_id: bytes(LIMIT // 4)}, instance_id="a" * (LIMIT // 2))
    assert bench.error(refused) is ErrorCode.INVALID_REQUEST
    assert largest(bench) <= LIMIT


def stable(bench: GroupBench, count: int, **how) -> list[Joined]:
    """Dynamic members, each with a part; the first one leads."""
    requests = [bench.enter(**how)[1] for _ in range(count)]
    bench.advance(10 * GATHER_MS)
    return bench.assign([bench.joined(each) for each in requests])


def test_members_that_were_killed_may_all_come_back_under_new_ids_at_once(bench):
    """Before the sessions of their former selves are over."""
    how = {"protocols": with_data(LIMIT * 15 // 100)}
    stable(bench, 5, **how)
    requests = [bench.enter(**how)[1] for _ in range(5)]
    assert not any(each in bench.answers for each in requests)
    bench.advance(SESSION_MS)
    assert {bench.joined(each).generation for each in requests} == {2}
    bench.assign([bench.joined(each) for each in requests])
    assert LIMIT // 2 < largest(bench) <= LIMIT


def test_those_who_come_back_at_once_are_no_more_than_fit(bench):
    how = {"protocols": with_data(LIMIT * 15 // 100)}
    stable(bench, 5, **how)
    for _ in range(6):
        bench.enter(**how)
    assert bench.error(bench.join(**how)) is ErrorCode.INVALID_REQUEST


def test_a_newcomer_for_whom_there_is_no_room_is_refused_and_the_others_go_on(bench):
    how = {"protocols": with_data(LIMIT * 15 // 100)}
    members = stable(bench, 6, **how)
    _, newcomer = bench.enter(**how)
    requests = [bench.join(each.member_id, **how) for each in members]
    assert bench.error(newcomer) is ErrorCode.INVALID_REQUEST
    assert {bench.joined(each).generation for each in requests} == {2}
    bench.assign([bench.joined(each) for each in requests])
    assert largest(bench) <= LIMIT


@pytest.mark.parametrize("instance_id", [None, "new"])
def test_no_member_goes_for_the_sake_of_a_newcomer(bench, instance_id):
    """Though it comes back a little larger, as one that tells what it owns, after the newcomer."""
    how = {"protocols": with_data(LIMIT * 14 // 100)}
    members = stable(bench, 6, **how)
    newcomer = bench.join(instance_id=instance_id, **how)
    if instance_id is None:
        newcomer = bench.join(bench.answers[newcomer].member_id, **how)
    how = {"protocols": with_data(LIMIT * 15 // 100)}
    requests = [bench.join(each.member_id, **how) for each in members]
    assert bench.error(newcomer) is ErrorCode.INVALID_REQUEST
    assert {bench.joined(each).generation for each in requests} == {2}
    bench.assign([bench.joined(each) for each in requests])
    assert largest(bench) <= LIMIT


def test_nobody_waits_for_a_newcomer_that_was_refused_under_the_id_that_it_was_promised(bench):
    how = {"protocols": with_data(LIMIT * 15 // 100)}
    members = stable(bench, 6, **how)
    promised = bench.answers[bench.join(**how)].member_id
    bench.join(instance_id="small", protocols=with_data(0))
    requests = [bench.join(each.member_id, **how) for each in members]
    assert not any(each in bench.answers for each in requests)
    assert bench.error(bench.join(promised, **how)) is ErrorCode.INVALID_REQUEST
    assert {bench.joined(each).generation for each in requests} == {2}


def test_a_member_that_is_fenced_or_forgotten_hears_so_however_large_it_is(bench):
    (fenced,) = static(bench, "a", protocols=with_data(LIMIT // 2))
    bench.sync(fenced, instance_id="a")
    bench.joined(bench.join(instance_id="a", protocols=with_data(LIMIT // 2)))
    how = {"protocols": with_data(LIMIT * 8 // 10)}
    again = bench.join(fenced.member_id, instance_id="a", **how)
    assert bench.error(again) is ErrorCode.FENCED_INSTANCE_ID
    assert bench.error(bench.join("nobody", **how)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_parts_count_only_for_one_that_keeps_that_of_the_one_before(bench):
    """With another subscription it begins a rebalance, by which all are assigned anew."""
    first, second = static(bench, "a", "b")
    parts = {each.member_id: bytes(LIMIT // 4) for each in (first, second)}
    bench.sync(first, parts, instance_id="a")
    other = (("range", subscription("t", "u") + bytes(LIMIT // 2)),)
    request = bench.join(instance_id="b", protocols=other)
    assert bench.group().state is GroupState.PREPARING
    assert request not in bench.answers
