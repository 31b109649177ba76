"""Users that log in by SCRAM: a password never leaves the client."""

import pytest

from storage_engine.client.admin.scram_users import (
    ITERATIONS,
    describe_users,
    remove_user,
    set_password,
)
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.security.scram_credential import ScramMechanism, salted_password
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@pytest.fixture
def changes(fake):
    """The requests that change users, to brokers that take them."""
    asked = []

    def answer(_broker_id, _api, message):
        asked.append(message)
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(user="u")]
        )

    fake.admin = answer
    return asked


def test_a_password_is_sent_as_salted_hashes_with_a_salt_each(cluster, changes):
    set_password(cluster, "u", "secret", [SHA_256, SHA_512])
    (message,) = changes
    first, second = message.upsertions
    assert first.salt != second.salt
    for mechanism, row in ((SHA_256, first), (SHA_512, second)):
        salt = bytes(row.salt)
        hashed = salted_password(mechanism, "secret", salt=salt, iterations=ITERATIONS)
        assert (row.mechanism, bytes(row.salted_password)) == (mechanism.code, hashed)
        assert row.iterations == ITERATIONS
    assert "secret" not in repr(message)


def test_a_removal_names_the_mechanisms(cluster, changes):
    with pytest.raises(ConfigError, match="no mechanism of user 'u' is given"):
        remove_user(cluster, "u", [])
    assert changes == []
    remove_user(cluster, "u", [SHA_512])
    assert [(row.name, row.mechanism) for row in changes[0].deletions] == [("u", 2)]


def test_users_are_told_by_name_without_mechanisms_and_names_that_are_not_known(fake, cluster):
    def result(user, *mechanisms, code=ErrorCode.NONE):
        infos = [Result.CredentialInfo(mechanism=each, iterations=8192) for each in mechanisms]
        return Result(user=user, error_code=int(code), error_message=None, credential_infos=infos)

    results = [result("b", 1, 77), result("a", 2), result("c", code=ErrorCode.RESOURCE_NOT_FOUND)]
    fake.admin = lambda *_: DescribeUserScramCredentialsResponse(
        error_message=None, results=results
    )
    assert describe_users(cluster) == {"a": {SHA_512: 8192}, "b": {SHA_256: 8192}}
    results.append(result("d", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError):
        describe_users(cluster)
