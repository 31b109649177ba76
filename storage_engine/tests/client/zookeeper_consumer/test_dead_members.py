"""R-CLI3: the partitions of a member whose process has ended go to others of its machine at once; a
member that lives keeps its session."""

from dataclasses import replace

import pytest

from storage_engine.core.ports import SessionState
from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import (
    SESSION_MS,
    Member,
    World,
)
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths
from storage_engine.zookeeper.session_credentials import SessionZNode

SOON_MS = SESSION_MS // 2
"""Delays of messages are random; a session that expires takes all of its time."""


@pytest.fixture
def world() -> World:
    return World(1)


def shared(world: World, *members: Member) -> None:
    """Returns when each of them has some."""
    world.loop.run_until(lambda: all(each.streams for each in members), limit_ms=10 * SESSION_MS)
    world.settle()


def has_all(world: World, member: Member) -> bool:
    return len(member.streams) == sum(world.partitions.values())


def is_live(world: World, session_id: int) -> bool:
    return session_id in world.server.live


def planted(world: World, session_id: int, node: SessionZNode, name: str = "") -> None:
    """A session's znode that none of the members has written."""
    path = f"{world.paths.sessions}/{name or ConsumerGroupPaths.session_name(session_id)}"
    world.server.put(path, node.encode())
    world.server.nodes[path].owner = session_id


def test_the_heir_has_all_long_before_the_session_of_a_killed_member_would_expire(world):
    dead, heir = world.join(0, sees_death=True), world.join(0, sees_death=True)
    shared(world, dead, heir)
    session_id = dead.session.session_id
    dead.kill()
    world.loop.run_until(lambda: has_all(world, heir), limit_ms=SOON_MS)
    assert not is_live(world, session_id)
    world.settle()


@pytest.mark.parametrize(
    ("machine", "dead_tells", "heir_looks"), [(1, True, True), (0, False, True), (0, True, False)]
)
def test_without_proof_the_session_decides(world, machine, dead_tells, heir_looks):
    dead = world.join(0, sees_death=dead_tells)
    heir = world.join(machine, sees_death=heir_looks)
    shared(world, dead, heir)
    session_id = dead.session.session_id
    dead.kill()
    world.loop.run_for(SOON_MS)
    assert is_live(world, session_id) and not has_all(world, heir)
    world.settle()


def test_a_member_that_stands_still_is_not_taken_for_dead(world):
    still, other = world.join(0, sees_death=True), world.join(0, sees_death=True)
    shared(world, still, other)
    session_id, held = still.session.session_id, dict(still.streams)
    still.pause(SOON_MS)
    world.loop.run_for(2 * SESSION_MS)
    assert still.session.session_id == session_id and dict(still.streams) == held


@pytest.mark.parametrize("started_ms", [0, 10**6], ids=["before", "after"])
def test_a_number_that_nobody_or_another_has_is_no_proof(world, started_ms):
    """As on a machine that was cloned with its memory."""
    member = world.join(0, sees_death=True)
    shared(world, member)
    other = world.machines[0].begin(started_ms)
    for pid in (other.identity.pid, 99):
        stranger = world.server.new_session()
        named = replace(other.identity, pid=pid, start_ticks=5)
        planted(world, stranger, SessionZNode(password=b"p", process=named))
        asked: list[int] = []
        member.foreign_sessions.end = lambda *args, asked=asked: asked.append(args[0])
        world.loop.run_for(SESSION_MS // 4)
        other.end()
        world.loop.run_for(SESSION_MS)
        assert asked == []


def test_nobody_can_name_the_session_of_another(world):
    victim = world.join(1, sees_death=True)
    shared(world, victim)
    session_id = victim.session.session_id
    name = ConsumerGroupPaths.session_name(session_id)
    liar = world.server.new_session()
    process = world.machines[0].begin(7)
    password = world.server.password_of(session_id)
    planted(world, liar, SessionZNode(password=password, process=process.identity), name)
    for data in (b"", b"{}", b"\xff"):
        world.server.put(f"{world.paths.sessions}/damaged-{data.hex()}", data)
    shared(world, victim, world.join(0, sees_death=True))
    process.end()
    world.loop.run_for(SESSION_MS // 2)
    assert victim.session.session_id == session_id and is_live(world, session_id)
    world.settle()


def test_a_process_of_another_machine_that_has_its_number_is_no_proof(world):
    process = world.machines[0].begin(world.loop.now_ms)
    victim, member = world.join(1, sees_death=True), world.join(0, sees_death=True)
    named, other = victim.of_machine.identity, process.identity
    assert (named.pid, named.start_ticks) == (other.pid, other.start_ticks)
    shared(world, victim, member)
    session_id = victim.session.session_id
    process.end()
    world.loop.run_for(SESSION_MS)
    assert victim.session.session_id == session_id and is_live(world, session_id)


def test_one_that_lives_and_whose_session_is_closed_stops_and_is_a_member_again(world):
    closed, other = world.join(0, sees_death=True), world.join(1, sees_death=True)
    shared(world, closed, other)
    states: list[SessionState] = []
    closed.session.add_state_listener(states.append)
    world.server.close_session(closed.session.session_id)
    world.loop.run_until(lambda: SessionState.LOST in states, limit_ms=SESSION_MS)
    assert closed.streams == {}
    shared(world, closed, other)
    assert world.paths.session(closed.session.session_id) in world.server.nodes


def test_a_znode_that_somebody_has_removed_is_made_again(world):
    member = world.join(0, sees_death=True)
    shared(world, member)
    path = world.paths.session(member.session.session_id)
    world.server.drop(path)
    world.loop.run_until(lambda: path in world.server.nodes, limit_ms=SESSION_MS)


def test_a_session_that_could_not_be_closed_is_closed_again(world):
    dead, heir = world.join(0, sees_death=True), world.join(0, sees_death=True)
    shared(world, dead, heir)
    end = heir.foreign_sessions.end
    refused: list[int] = []

    def first_fails(session_id, password, on_done):
        if refused:
            end(session_id, password, on_done)
        else:
            refused.append(session_id)
            on_done(False)

    heir.foreign_sessions.end = first_fails
    dead.session.timeout_ms = 100 * SESSION_MS
    dead.kill()
    world.loop.run_until(lambda: has_all(world, heir), limit_ms=3 * SESSION_MS)
    assert len(refused) == 1


def test_of_many_members_one_closes_the_session(world):
    members = [world.join(0, sees_death=True) for _ in range(4)]
    world.settle()
    asked: list[int] = []
    for member in members:
        end = member.foreign_sessions.end

        def noted(*args, end=end):
            asked.append(args[0])
            end(*args)

        member.foreign_sessions.end = noted
    dead = members[2]
    session_id = dead.session.session_id
    dead.kill()
    world.loop.run_for(2 * SESSION_MS)
    assert asked[0] == session_id and len(asked) <= 2
    world.settle()
