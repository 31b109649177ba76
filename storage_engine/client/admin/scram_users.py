"""Users that log in by SCRAM: lists, adds and removes them. Source: KIP-554."""

import os
from collections.abc import Iterable, Sequence

from storage_engine.client.admin.requests import error_of, first_error
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ConfigError, ErrorCode
from storage_engine.core.security.scram_credential import ScramMechanism, salted_password
from storage_engine.protocol.messages.alter_user_scram_credentials import API as ALTER_CREDENTIALS
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    API as DESCRIBE_CREDENTIALS,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

ITERATIONS = 8192
"""Hashes that a log-in costs the client, between Kafka's bounds."""
SALT_BYTES = 32


def describe_users(
    cluster: Cluster, names: Sequence[str] | None = None
) -> dict[str, dict[ScramMechanism, int]]:
    """The iterations of each user's credentials by mechanism, by name; None: of all users. Names
    that nobody has are left out."""
    user = DescribeUserScramCredentialsRequest.UserName
    users = None if names is None else [user(name=name) for name in names]
    answer = cluster.ask_any(
        DESCRIBE_CREDENTIALS, DescribeUserScramCredentialsRequest(users=users), error_of=error_of
    )
    found: dict[str, dict[ScramMechanism, int]] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if (error := error_of(result)) is not None:
            raise error
        found[result.user] = {
            mechanism: each.iterations
            for each in result.credential_infos
            if (mechanism := ScramMechanism.of_code(each.mechanism)) is not None
        }
    return dict(sorted(found.items()))


def set_password(
    cluster: Cluster, user: str, password: str, mechanisms: Iterable[ScramMechanism]
) -> None:
    """Makes a user, or replaces its password. The password itself does not leave this process."""
    rows = []
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        salted = salted_password(mechanism, password, salt=salt, iterations=ITERATIONS)
        rows.append(
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.code,
                iterations=ITERATIONS,
                salt=salt,
                salted_password=salted,
            )
        )
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=rows))


def remove_user(cluster: Cluster, user: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """Removes credentials; who is logged in stays so until it has to log in again."""
    row = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    rows = [row(name=user, mechanism=mechanism.code) for mechanism in mechanisms]
    if not rows:
        raise ConfigError(f"no mechanism of user '{user}' is given; give those to be removed")
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=rows))


def _alter(cluster: Cluster, changes: AlterUserScramCredentialsRequest) -> None:
    cluster.ask_any(ALTER_CREDENTIALS, changes, error_of=lambda answer: first_error(answer.results))
