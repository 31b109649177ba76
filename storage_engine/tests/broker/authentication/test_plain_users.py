"""Users of PLAIN, of a login module or of a file that may change."""

import os
from pathlib import Path

import pytest

from storage_engine.broker.authentication.plain_users import PlainUsers, PlainUsersFile
from storage_engine.core.errors import ConfigError

KEY = "sasl.plain.users.file"


def test_plain_users_are_known_by_their_passwords_which_are_not_kept() -> None:
    users = PlainUsers({"alice": "hunter2", "empty": ""})
    assert users.is_password_of("alice", "hunter2")
    assert not users.is_password_of("alice", "hunter3")
    assert not users.is_password_of("nobody", "")
    assert b"hunter2" not in b"".join(users._digests.values())


def users_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "users"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_users_of_a_file_change_with_it(tmp_path) -> None:
    path = users_file(tmp_path, "# people\nalice=hunter2\nb\\=ob=with = sign\n")
    users = PlainUsersFile(path, key=KEY)
    assert users.is_password_of("alice", "hunter2")
    assert users.is_password_of("b=ob", "with = sign")
    users_file(tmp_path, "carol=hunter3\n")
    assert users.is_password_of("carol", "hunter3")
    assert not users.is_password_of("alice", "hunter2")


def test_a_file_that_is_broken_later_leaves_the_users_as_they_were(tmp_path, caplog) -> None:
    path = users_file(tmp_path, "alice=hunter2\n")
    users = PlainUsersFile(path, key=KEY)
    os.utime(path, ns=(1, 1))
    path.write_text("alice=\n")
    for _ in range(3):
        assert users.is_password_of("alice", "hunter2")
    path.unlink()
    assert users.is_password_of("alice", "hunter2")
    assert len(caplog.records) == 1, "once, not for every log-in"
    users_file(tmp_path, "alice=hunter4\n")
    assert users.is_password_of("alice", "hunter4")


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("alice=hunter2", 0o640, "can be read by others: chmod 600 it"),
        ("alice=", 0o600, "each line must be user=password"),
        ("hunter2", 0o600, "each line must be user=password"),
        ("a=b\n" * 300_000, 0o600, "has more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_wrong_is_told_and_what_is_in_it_is_not(
    tmp_path, text, mode, expected
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        PlainUsersFile(users_file(tmp_path, text, mode), key=KEY)
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).startswith(f"{KEY}={tmp_path}")


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        PlainUsersFile(tmp_path / "none", key=KEY)
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        PlainUsersFile(tmp_path / "image", key=KEY)
