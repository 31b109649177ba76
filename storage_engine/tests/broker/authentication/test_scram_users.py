"""Users of SCRAM, whose credentials stand in ZooKeeper."""

from storage_engine.broker.authentication.scram_users import ScramUsers
from storage_engine.core.security.sasl_server import ScramDecoys
from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


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
