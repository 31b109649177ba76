"""The users that a broker knows: those of SCRAM from ZooKeeper, those of PLAIN from a file."""

import os
from pathlib import Path

import pytest

from storage_engine.broker.authentication.plain_users import PlainUsers, PlainUsersFile
from storage_engine.broker.authentication.scram_users import ScramUsers
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_server import ScramDecoys
from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
KEY = "sasl.plain.users.file"


def settings(*mechanisms: ScramMechanism, iterations: int = 4096, salt: bytes = b"s" * 16):
    return {
        each.value: ScramCredential.of_password(
            each, "hunter2", salt=salt, iterations=iterations
        ).format()
        for each in mechanisms
    }


def test_a_user_has_the_mechanisms_that_its_settings_name() -> None:
    users = ScramUsers(ScramDecoys(b"key"))
    users.update("alice", settings(SHA_256, SHA_512))
    users.update("bob", settings(SHA_512) | {"producer_byte_rate": "1"})
    assert sorted(users) == ["alice", "bob"]
    assert users.find(SHA_256, "alice").is_known
    assert not users.find(SHA_256, "bob").is_known
    users.update("alice", settings(SHA_256))
    assert not users.find(SHA_512, "alice").is_known
    users.update("alice", {})
    assert list(users) == ["bob"]


def test_a_credential_that_is_not_of_the_form_leaves_the_user_without_it(caplog) -> None:
    users = ScramUsers(ScramDecoys(b"key"))
    users.update("alice", settings(SHA_256) | {SHA_512.value: "salt=hunter2"})
    assert users.find(SHA_256, "alice").is_known
    assert not users.find(SHA_512, "alice").is_known
    assert "SCRAM-SHA-512 credential of user 'alice' is ignored" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_decoy_looks_like_most_users() -> None:
    users = ScramUsers(ScramDecoys(b"key"))
    assert users.find(SHA_256, "nobody").credential.iterations == 4096
    for name in ("a", "b"):
        users.update(name, settings(SHA_256, iterations=8192, salt=b"s" * 20))
    users.update("c", settings(SHA_256))
    decoy = users.find(SHA_256, "nobody").credential
    assert (decoy.iterations, len(decoy.salt)) == (8192, 20)
    for name in ("a", "b"):
        users.update(name, {})
    assert users.find(SHA_256, "nobody").credential.iterations == 4096


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
