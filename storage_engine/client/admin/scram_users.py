"""Users that log in by SCRAM: lists, adds and removes them. Source: KIP-554."""

import os
from collections.abc import Iterable, Sequence

from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.security.scram_credential import ScramMechanism, salted_password
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    API as ALTER_USER_SCRAM_CREDENTIALS,
)
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    API as DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

_DESCRIBE, _ALTER = 50, 51

ITERATIONS = 8192
"""Hashes that a log-in costs the client, between Kafka's bounds."""
SALT_BYTES = 32


def describe_users(
    cluster: Cluster, names: Sequence[str] | None = None
) -> dict[str, dict[ScramMechanism, int]]:
    """The iterations of each user's credentials by mechanism, by name; None: of all users. Names
    that nobody has are left out."""
    users = (
        None
        if names is None
        else [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    )
    answer = cluster.ask_any(
        DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=users)
    )
    _check(answer.error_code, answer.error_message)
    found: dict[str, dict[ScramMechanism, int]] = {}
    for result in answer.results:
        if ErrorCode.of(result.error_code) is ErrorCode.RESOURCE_NOT_FOUND:
            continue
        _check(result.error_code, result.error_message)
        credentials = {
            ScramMechanism.of_code(each.mechanism): each.iterations
            for each in result.credential_infos
        }
        found[result.user] = {
            mechanism: count for mechanism, count in credentials.items() if mechanism is not None
        }
    return dict(sorted(found.items()))


def set_password(
    cluster: Cluster, user: str, password: str, mechanisms: Iterable[ScramMechanism]
) -> None:
    """Makes a user, or replaces its password. The password itself does not leave this process."""
    rows = []
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        rows.append(
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.code,
                iterations=ITERATIONS,
                salt=salt,
                salted_password=salted_password(
                    mechanism, password, salt=salt, iterations=ITERATIONS
                ),
            )
        )
    _alter(cluster, user, AlterUserScramCredentialsRequest(upsertions=rows))


def remove_user(cluster: Cluster, user: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """Removes credentials; who is logged in stays so until it has to log in again."""
    rows = [
        AlterUserScramCredentialsRequest.ScramCredentialDeletion(
            name=user, mechanism=mechanism.code
        )
        for mechanism in mechanisms
    ]
    if not rows:
        raise ConfigError(f"user '{user}' has no credentials")
    _alter(cluster, user, AlterUserScramCredentialsRequest(deletions=rows))


def _alter(cluster: Cluster, user: str, changes: AlterUserScramCredentialsRequest) -> None:
    retry = Retry(f"the credentials of user '{user}'", Deadline.after(cluster.deadline_ms))
    while True:
        outcome = cluster.ask_any(ALTER_USER_SCRAM_CREDENTIALS, changes).results[0]
        code = ErrorCode.of(outcome.error_code)
        if code is ErrorCode.NONE:
            return
        retry.pause(KafkaError(outcome.error_message or code.meaning, code))


def _check(error_code: int, text: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(text or code.meaning, code)
