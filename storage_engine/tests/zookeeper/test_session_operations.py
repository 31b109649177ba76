"""Operations and watches of the session as a MetadataStore port. Source: R-REP11."""

import pytest

from storage_engine.core.ports import ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.tests.zookeeper.conftest import OpenSession
from storage_engine.tests.zookeeper.loop import HandLoop
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper
from storage_engine.zookeeper.session import MAX_ZNODE_BYTES, ZooKeeperSession


def test_a_node_created_is_read_with_its_stat(session: ZooKeeperSession, loop: HandLoop) -> None:
    created = loop.reply_of(session.create, "/a", b"one")
    read = loop.reply_of(session.get, "/a")
    assert created.path == "/a"
    assert read.data == b"one"
    assert created.stat == read.stat
    assert read.stat is not None
    assert read.stat.version == 0
    assert read.stat.ephemeral_owner == 0


def test_every_refusal_has_its_status(session: ZooKeeperSession, loop: HandLoop) -> None:
    loop.reply_of(session.create, "/p/c", b"", make_parents=True)
    assert loop.reply_of(session.get, "/none").status is ZkStatus.NO_NODE
    assert loop.reply_of(session.exists, "/none").status is ZkStatus.NO_NODE
    assert loop.reply_of(session.children, "/none").status is ZkStatus.NO_NODE
    assert loop.reply_of(session.create, "/p/c", b"").status is ZkStatus.NODE_EXISTS
    assert loop.reply_of(session.create, "/x/y", b"").status is ZkStatus.NO_NODE
    assert loop.reply_of(session.set, "/p", b"", 7).status is ZkStatus.BAD_VERSION
    assert loop.reply_of(session.delete, "/p", -1).status is ZkStatus.NOT_EMPTY
    assert loop.reply_of(session.delete, "/p/c", 3).status is ZkStatus.BAD_VERSION


def test_set_answers_with_the_new_version(session: ZooKeeperSession, loop: HandLoop) -> None:
    loop.reply_of(session.create, "/a", b"one")
    reply = loop.reply_of(session.set, "/a", b"two", 0)
    assert reply.stat is not None
    assert reply.stat.version == 1
    assert loop.reply_of(session.get, "/a").data == b"two"


def test_sequential_nodes_get_numbers_and_children_come_sorted(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    loop.reply_of(session.create, "/q", b"")
    paths = [loop.reply_of(session.create, "/q/n_", b"", sequence=True).path for _ in range(3)]
    assert paths == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]
    assert loop.reply_of(session.children, "/q").children == [p.removeprefix("/q/") for p in paths]
    made = loop.reply_of(session.create, "/new/n_", b"", sequence=True, make_parents=True)
    assert made.path == "/new/n_0000000000"


def test_a_path_that_has_no_form_in_utf_8_is_illegal_and_ends_nothing(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    """A name with half a character, as JSON can hold it, would end kazoo's thread."""
    for operation in (session.get, session.exists, session.children):
        reply = loop.reply_of(operation, "/x/\ud800")
        assert reply.status is ZkStatus.ILLEGAL
        assert reply.is_absent
    assert loop.reply_of(session.delete, "/x/\ud800", -1).status is ZkStatus.ILLEGAL
    assert loop.reply_of(session.create, "/x\x01", b"").status is ZkStatus.ILLEGAL
    assert loop.reply_of(session.create, "/sound", b"x").ok


@pytest.mark.parametrize("name", ["\u00a0x", "\u202e", "a\u200bb", "\u3000", "ä b"])
def test_a_node_whose_name_is_not_printable_is_one_like_others(
    session: ZooKeeperSession, loop: HandLoop, name: str
) -> None:
    """Whoever reads all children of a node would try again for ever."""
    path = f"/odd/{name}"
    assert loop.reply_of(session.create, path, b"x", make_parents=True).path == path
    assert loop.reply_of(session.children, "/odd").children == [name]
    assert loop.reply_of(session.get, path).data == b"x"
    assert loop.reply_of(session.exists, path).ok
    assert loop.reply_of(session.set, path, b"y", 0).ok
    assert loop.reply_of(session.delete, path, -1).ok


def test_an_ephemeral_node_belongs_to_the_session(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    reply = loop.reply_of(session.create, "/e", b"", ephemeral=True)
    assert reply.stat is not None
    assert reply.stat.ephemeral_owner == session.session_id != 0


def test_a_multi_is_done_as_a_whole(session: ZooKeeperSession, loop: HandLoop) -> None:
    loop.reply_of(session.create, "/a", b"one")
    reply = loop.reply_of(
        session.multi,
        [
            ZkOp(kind=ZkOpKind.CHECK, path="/a", version=0),
            ZkOp(kind=ZkOpKind.CREATE, path="/b", data=b"x", ephemeral=True),
            ZkOp(kind=ZkOpKind.SET, path="/a", data=b"two", version=0),
            ZkOp(kind=ZkOpKind.DELETE, path="/b"),
        ],
    )
    assert reply.ok
    changed = loop.reply_of(session.get, "/a")
    assert (changed.data, changed.stat.version) == (b"two", 1)
    assert loop.reply_of(session.exists, "/b").status is ZkStatus.NO_NODE


def test_a_multi_that_fails_names_the_operation_and_changes_nothing(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    loop.reply_of(session.create, "/a", b"one")
    reply = loop.reply_of(
        session.multi,
        [
            ZkOp(kind=ZkOpKind.CREATE, path="/b"),
            ZkOp(kind=ZkOpKind.SET, path="/a", data=b"two", version=9),
            ZkOp(kind=ZkOpKind.DELETE, path="/none"),
        ],
    )
    assert reply.status is ZkStatus.BAD_VERSION
    assert reply.failed == 1
    assert loop.reply_of(session.exists, "/b").status is ZkStatus.NO_NODE


def test_a_multi_can_make_a_numbered_node(session: ZooKeeperSession, loop: HandLoop) -> None:
    operation = ZkOp(kind=ZkOpKind.CREATE, path="/n_", sequence=True)
    for _ in range(2):
        assert loop.reply_of(session.multi, [operation]).ok
    names = loop.reply_of(session.children, "/").children
    first, second = (int(name.removeprefix("n_")) for name in names if name.startswith("n_"))
    assert second == first + 1


def test_an_empty_multi_is_done(session: ZooKeeperSession, loop: HandLoop) -> None:
    assert loop.reply_of(session.multi, []) == ZkReply(status=ZkStatus.OK)


def test_replies_come_in_the_order_of_the_operations_beyond_the_window(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    loop.reply_of(session.create, "/a", b"")
    versions: list[int] = []
    for i in range(500):
        session.set("/a", b"%d" % i, i, lambda reply: versions.append(reply.stat.version))  # type: ignore[union-attr]
    loop.run_until(lambda: len(versions) == 500)
    assert versions == list(range(1, 501))


@pytest.mark.parametrize("kind", ["get", "exists", "children"])
def test_a_watch_fires_once(session: ZooKeeperSession, loop: HandLoop, kind: str) -> None:
    fired: list[str] = []
    loop.reply_of(session.create, "/w", b"")
    loop.reply_of(getattr(session, kind), "/w", watch=lambda: fired.append(kind))
    for i in range(3):
        loop.reply_of(session.create, f"/w/{i}", b"")
        loop.reply_of(session.set, "/w", b"%d" % i, -1)
    loop.run_until(lambda: fired == [kind])
    loop.run_for(0.1)
    assert fired == [kind]


def test_the_watch_of_exists_fires_when_the_node_comes(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    fired: list[int] = []
    assert not loop.reply_of(session.exists, "/w", watch=lambda: fired.append(1)).ok
    loop.reply_of(session.create, "/w", b"")
    loop.run_until(lambda: fired == [1])


def test_a_watch_fires_before_the_reply_that_shows_the_change(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    for i in range(50):
        happened: list[str] = []
        path = f"/order{i}"
        session.create(path, b"old", lambda _: None)
        session.get(path, lambda _: None, watch=lambda seen=happened: seen.append("watch"))  # type: ignore[misc]
        session.set(path, b"new", -1, lambda _: None)
        session.get(path, lambda r, seen=happened: seen.append(r.data.decode()))  # type: ignore[misc]
        loop.run_until(lambda seen=happened: len(seen) == 2)  # type: ignore[misc]
        assert happened == ["watch", "new"]


def test_a_watch_never_overtakes_the_reply_that_set_it(
    open_session: OpenSession, loop: HandLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's thread stands still behind its request, and somebody writes meanwhile."""
    session, other = open_session(), open_session()
    loop.reply_of(session.create, "/w", b"old")
    get_async = session._client.get_async

    def stands_still(path: str, watch: object) -> object:
        result = get_async(path, watch=watch)
        result.wait()
        other._client.set("/w", b"new")
        # Its answer comes behind the event.
        session._client.exists("/w")
        return result

    monkeypatch.setattr(session._client, "get_async", stands_still)
    happened: list[str] = []
    session.get(
        "/w",
        lambda reply: happened.append(reply.data.decode()),
        watch=lambda: happened.append("watch"),
    )
    loop.run_until(lambda: len(happened) == 2)
    assert happened == ["old", "watch"]


def test_a_znode_too_large_is_unknown_and_costs_no_session(
    session: ZooKeeperSession, loop: HandLoop
) -> None:
    reply = loop.reply_of(session.create, "/big", bytes(MAX_ZNODE_BYTES + 1))
    assert reply.status is ZkStatus.UNKNOWN
    assert loop.reply_of(session.exists, "/big").status is ZkStatus.NO_NODE


def test_the_chroot_is_made_and_hidden(
    open_session: OpenSession, zookeeper: EmbeddedZooKeeper, loop: HandLoop
) -> None:
    inner = open_session(connect=f"{zookeeper.connect}/deep/er/root")
    outer = open_session(connect=zookeeper.connect)
    assert loop.reply_of(inner.create, "/a", b"", sequence=True).path == "/a0000000000"
    assert loop.reply_of(outer.exists, "/deep/er/root/a0000000000").ok
