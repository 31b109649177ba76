"""SCRAM users are made, changed and removed by requests, all or nothing for each user."""

import hashlib
import json

import pytest

from storage_engine.broker.settings.config_store import ConfigEntity, EntityKind
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.scram_credential import ScramCredential, ScramMechanism
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    API as ALTER,
)
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest as Alter,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    API as DESCRIBE,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest as Describe,
)

SALT = b"salt" * 4


def upsertion(name: str, mechanism: int = 1, **changes):
    hashed = "sha256" if mechanism == 1 else "sha512"
    fields = {
        "iterations": 4096,
        "salt": SALT,
        "salted_password": hashlib.pbkdf2_hmac(hashed, b"hunter2", SALT, 4096),
    }
    return Alter.ScramCredentialUpsertion(name=name, mechanism=mechanism, **{**fields, **changes})


def deletion(name: str, mechanism: int = 1):
    return Alter.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster, *upsertions, deletions=(), broker: int = 1) -> dict[str, ErrorCode]:
    request = Alter(upsertions=list(upsertions), deletions=list(deletions))
    answer = cluster.answer(cluster.ask(broker, ALTER, 0, request))
    return {each.user: ErrorCode.of(each.error_code) for each in answer.results}


def describe(cluster, *names: str, broker: int = 1):
    users = [Describe.UserName(name=name) for name in names] or None
    answer = cluster.answer(cluster.ask(broker, DESCRIBE, 0, Describe(users=users)))
    assert answer.error_code == 0
    return {
        each.user: {info.mechanism: info.iterations for info in each.credential_infos}
        or ErrorCode.of(each.error_code)
        for each in answer.results
    }


NONE = ErrorCode.NONE


def test_a_user_is_made_as_kafka_keeps_it_and_any_broker_describes_it(cluster) -> None:
    made = alter(cluster, upsertion("alice"), upsertion("alice", 2), upsertion("b,ob ~*"))
    assert made == {"alice": NONE, "b,ob ~*": NONE}
    stored = json.loads(cluster.zookeeper.data("/config/users/alice"))
    expected = ScramCredential.of_password(
        ScramMechanism.SHA_256, "hunter2", salt=SALT, iterations=4096
    )
    assert stored["config"]["SCRAM-SHA-256"] == expected.format()
    assert cluster.zookeeper.data("/config/users/b%2Cob%20%7E%2A")
    expected_all = {"alice": {1: 4096, 2: 4096}, "b,ob ~*": {1: 4096}}
    assert describe(cluster, broker=2) == expected_all
    assert describe(cluster, "alice", "nobody") == {
        "alice": {1: 4096, 2: 4096},
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert describe(cluster, "alice", "alice") == {"alice": ErrorCode.DUPLICATE_RESOURCE}


def test_nobody_is_there_at_first(cluster) -> None:
    assert describe(cluster) == {}
    assert alter(cluster) == {}
    found = alter(cluster, deletions=[deletion("alice")])
    assert found == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


def test_a_credential_is_removed_and_the_others_stay(cluster) -> None:
    alter(cluster, upsertion("alice"), upsertion("alice", 2))
    assert alter(cluster, deletions=[deletion("alice")], broker=3) == {"alice": NONE}
    assert describe(cluster, "alice") == {"alice": {2: 4096}}
    assert alter(cluster, upsertion("alice"), deletions=[deletion("alice", 2)]) == {"alice": NONE}
    assert describe(cluster) == {"alice": {1: 4096}}
    alter(cluster, deletions=[deletion("alice")])
    assert describe(cluster) == {}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion("x", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", salt=bytes(257)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", salted_password=bytes(64)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x\ny"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
    ids=lambda each: str(each)[:20] if isinstance(each, ErrorCode) else "",
)
def test_what_can_not_be_is_refused_for_that_user_alone(cluster, wrong, code) -> None:
    assert alter(cluster, wrong, upsertion("good")) == {wrong.name: code, "good": NONE}


def test_changes_that_contradict_each_other_are_refused(cluster) -> None:
    twice = alter(cluster, upsertion("alice"), upsertion("alice"))
    assert twice == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    both = alter(cluster, upsertion("alice"), deletions=[deletion("alice")])
    assert both == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    half = alter(cluster, upsertion("alice"), deletions=[deletion("alice", 2)])
    assert half == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert describe(cluster) == {}


def test_a_request_for_very_many_users_is_refused(cluster) -> None:
    salted = bytes(32)
    many = [upsertion(f"u{number}", salted_password=salted) for number in range(1001)]
    assert set(alter(cluster, *many).values()) == {ErrorCode.INVALID_REQUEST}
    names = [Describe.UserName(name=f"u{number}") for number in range(1001)]
    answer = cluster.answer(cluster.ask(1, DESCRIBE, 0, Describe(users=names)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["alice", "b,ob ~*", "<default>", "a/b", "ü", "%41"])
def test_a_user_is_found_by_the_name_of_its_node(name: str) -> None:
    entity = ConfigEntity.user(name)
    assert ConfigEntity.parse(entity.path) == entity


@pytest.mark.parametrize("path", ["users/<default>", "users/a/clients/b", "users/", "users/%zz"])
def test_nodes_of_other_kinds_are_no_users(path: str) -> None:
    found = ConfigEntity.parse(path)
    assert found is None or found.kind is not EntityKind.USER


def test_quotas_of_users_are_no_credentials(cluster) -> None:
    alter(cluster, upsertion("alice"))
    for node in ("<default>", "bob"):
        config = {"version": 1, "config": {"producer_byte_rate": "1000"}}
        cluster.zookeeper.put(f"/config/users/{node}", json.dumps(config).encode())
    assert describe(cluster) == {"alice": {1: 4096}}
