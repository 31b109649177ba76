"""SCRAM users in ZooKeeper, without a broker."""

import pytest

from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism
from storage_engine.tools import user_nodes
from storage_engine.tools.user_nodes import ITERATIONS, UserNodes, UserNodesError, credentials_of
from storage_engine.zookeeper.access import ZooKeeperAccess


def test_each_mechanism_has_a_credential_with_a_salt_of_its_own():
    mechanisms = list(ScramMechanism)
    found, again = credentials_of("secret", mechanisms), credentials_of("secret", mechanisms)
    assert set(found) == {each.value for each in mechanisms}
    for mechanism in mechanisms:
        credential = ScramCredential.parse(mechanism, found[mechanism.value])
        assert credential.iterations == ITERATIONS
        assert credential.salt != ScramCredential.parse(mechanism, again[mechanism.value]).salt
        assert credential == ScramCredential.of_password(
            mechanism, "secret", salt=credential.salt, iterations=ITERATIONS
        )
        assert "secret" not in found[mechanism.value]


def test_a_zookeeper_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(user_nodes, "CONNECT_TIMEOUT_S", 0.3)
    with (
        pytest.raises(
            UserNodesError, match=r"no ZooKeeper at 127\.0\.0\.1:1: no answer within 0 s"
        ),
        UserNodes.connected("127.0.0.1:1", ZooKeeperAccess()),
    ):
        pytest.fail("connected")
