"""Digest authentication and ACLs on znodes: `zookeeper.set.acl`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import ZkOp, ZkOpKind, ZkStatus
from storage_engine.tests.zookeeper.conftest import OpenSession
from storage_engine.tests.zookeeper.loop import HandLoop
from storage_engine.zookeeper.access import (
    ANYBODY,
    ZooKeeperAccess,
    ZooKeeperRefusedError,
    load_access,
)
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper

OWN = ZooKeeperAccess(user="headrace", password="secret", set_acl=True)
WRONG = ZooKeeperAccess(user="headrace", password="guessed", set_acl=True)

NewStranger = Callable[[], KazooClient]


@pytest.fixture
def new_stranger(zookeeper: EmbeddedZooKeeper, chroot: str) -> Iterator[NewStranger]:
    """Makes a client of nobody in particular, once the chroot is there."""
    clients: list[KazooClient] = []

    def make() -> KazooClient:
        clients.append(KazooClient(zookeeper.connect + chroot))
        clients[-1].start()
        return clients[-1]

    yield make
    for client in clients:
        client.stop()
        client.close()


def test_nodes_with_acl_are_read_by_all_and_written_by_their_user_alone(
    open_session: OpenSession, loop: HandLoop, new_stranger: NewStranger
) -> None:
    session = open_session(access=OWN)
    stranger = new_stranger()
    assert loop.reply_of(session.create, "/brokers/ids/1", b"one", make_parents=True).ok
    assert loop.reply_of(
        session.multi, [ZkOp(kind=ZkOpKind.CREATE, path="/controller", data=b"two")]
    ).ok
    for path in ("/", "/brokers", "/brokers/ids", "/brokers/ids/1", "/controller"):
        stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.set(path, b"mine now")
        with pytest.raises(NoAuthError):
            stranger.create(f"{path}/x".replace("//", "/"), b"")
    with pytest.raises(NoAuthError):
        stranger.delete("/brokers/ids/1")
    assert loop.reply_of(session.set, "/brokers/ids/1", b"three", -1).ok
    assert stranger.get("/brokers/ids/1")[0] == b"three"


def test_credentials_of_users_are_read_by_brokers_alone(
    open_session: OpenSession, loop: HandLoop, new_stranger: NewStranger
) -> None:
    session = open_session(access=OWN)
    path = "/config/users/anna"
    assert loop.reply_of(session.create, path, b"secret", make_parents=True).ok
    stranger = new_stranger()
    for secret in (path, "/config/users"):
        with pytest.raises(NoAuthError):
            stranger.get(secret)
    assert loop.reply_of(open_session(access=OWN).get, path).data == b"secret"


def test_below_consumers_everybody_may_write(
    open_session: OpenSession, loop: HandLoop, new_stranger: NewStranger
) -> None:
    """R-CLI3: members of groups that meet in ZooKeeper have no credentials."""
    session = open_session(access=OWN)
    assert loop.reply_of(session.create, "/consumers", b"", make_parents=True).ok
    stranger = new_stranger()
    stranger.create("/consumers/g/offsets/t/0", b"1", makepath=True)
    assert stranger.get("/consumers/g/offsets/t/0")[0] == b"1"


@pytest.mark.parametrize("access", [WRONG, ANYBODY])
def test_a_broker_that_may_not_register_is_refused_with_the_remedy(
    open_session: OpenSession, loop: HandLoop, access: ZooKeeperAccess
) -> None:
    session = open_session(access=OWN)
    assert loop.reply_of(session.create, "/brokers/ids", b"", make_parents=True).ok
    with pytest.raises(ZooKeeperRefusedError, match="not write /brokers/ids"):
        open_session(access=access)
    open_session(access=OWN)


def test_what_is_denied_later_has_not_happened(
    open_session: OpenSession, loop: HandLoop, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = open_session(access=ANYBODY)
    own = open_session(access=OWN)
    assert loop.reply_of(own.create, "/a", b"").ok
    assert loop.reply_of(nobody.set, "/a", b"x", -1).status is ZkStatus.UNKNOWN
    assert "NoAuthError" in caplog.text


def test_without_acl_everybody_may_write(
    open_session: OpenSession, loop: HandLoop, new_stranger: NewStranger
) -> None:
    session = open_session(access=ZooKeeperAccess(user="headrace", password="secret"))
    stranger = new_stranger()
    assert loop.reply_of(session.create, "/a", b"").ok
    stranger.set("/a", b"x")


def test_credentials_are_read_from_a_file_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.password"
    file.write_text("headrace:se:cret\n")
    file.chmod(0o600)
    access = load_access(file, set_acl=True)
    assert (access.user, access.password, access.set_acl) == ("headrace", "se:cret", True)
    assert load_access(None, set_acl=False) is ANYBODY


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"headrace:secret\n", 0o640, "can be read by others: chmod 600 it"),
        (b"headrace\n", 0o600, "must have one line, user:password"),
        (b"headrace:\n", 0o600, "must have one line"),
        (b":secret\n", 0o600, "must have one line"),
        (b"a:b\nc:d\n", 0o600, "must have one line"),
        (b"", 0o600, "must have one line"),
        (b"\xff\xfe:x\n", 0o600, "can't be read"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_bad_credentials_file_is_named_and_its_password_is_not(
    tmp_path: Path, content: bytes | None, mode: int, told: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(ConfigError, match=told) as raised:
        load_access(file, set_acl=False)
    assert str(file) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_acls_without_a_user_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.digest.credentials.file"):
        load_access(None, set_acl=True)


def test_the_password_is_shown_by_nothing():
    assert "secret" not in repr(ZooKeeperAccess(user="headrace", password="secret"))
