"""Rights on subjects follow those on topics, asked of a broker and kept for some seconds."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace_registry.access import rights
from headrace_registry.access.rights import Doing, LoggedInUser, check_may
from storage_engine.core.errors import ErrorCode
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.core.security.acl_rules import AclOperation
from storage_engine.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataTopic

DENIED = -1


def bits(*operations: AclOperation) -> int:
    return sum(1 << each for each in operations)


class Broker:
    """Answers Metadata, as a cluster and as the upstream in front of it."""

    def __init__(self, topics: dict[str, int], on_cluster: int = 0) -> None:
        self.topics = topics
        self.on_cluster = on_cluster
        self.asked: list[list[str]] = []

    def call(self, work: Callable[[Any], Any]) -> Any:
        return work(self)

    def ask_any(self, _spec: Any, request: MetadataRequest, *, version: int) -> MetadataResponse:
        names = list(request.topics or ())
        self.asked.append(names)
        return MetadataResponse(
            topics=[self._topic(name) for name in names],
            cluster_authorized_operations=self.on_cluster,
        )

    def _topic(self, name: str) -> MetadataTopic:
        known = self.topics.get(name)
        if known is None:
            return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)
        if known == DENIED:
            return MetadataTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=name)
        return MetadataTopic(error_code=0, topic=name, authorized_operations=known)


READ, WRITE = AclOperation.READ, AclOperation.WRITE
DESCRIBE, ALTER, DELETE = AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.DELETE


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        ((), set()),
        ((READ,), {Doing.SEE}),
        ((DESCRIBE,), {Doing.SEE}),
        ((WRITE,), {Doing.REGISTER}),
        ((DELETE,), {Doing.DELETE}),
        ((ALTER,), {Doing.SET}),
    ],
)
@pytest.mark.parametrize("suffix", ["-key", "-value"])
def test_a_right_on_a_topic_is_one_on_its_subjects(held, allowed, suffix) -> None:
    on_cluster = bits(DESCRIBE, ALTER)
    principal = LoggedInUser(Broker({"t": bits(*held)}, on_cluster))
    assert {each for each in Doing if principal.may(each, f"t{suffix}")} == allowed


@pytest.mark.parametrize("subject", ["com.example.R", "t", "-value", "nowhere-value"])
def test_other_subjects_follow_the_rights_on_the_cluster(subject) -> None:
    topics = {"t": bits(READ, WRITE, DELETE, ALTER)}
    nobody = LoggedInUser(Broker(topics))
    assert not [each for each in Doing if nobody.may(each, subject)]
    reader = LoggedInUser(Broker(topics, bits(DESCRIBE)))
    assert [each for each in Doing if reader.may(each, subject)] == [Doing.SEE]
    admin = LoggedInUser(Broker(topics, bits(DESCRIBE, ALTER)))
    assert all(admin.may(each, subject) for each in Doing)


def test_who_may_not_know_of_a_topic_may_do_nothing_with_its_subjects() -> None:
    principal = LoggedInUser(Broker({"t": DENIED}, bits(DESCRIBE, ALTER)))
    assert not [each for each in Doing if principal.may(each, "t-value")]


def test_the_whole_registry_is_seen_by_all_and_changed_with_alter_on_the_cluster() -> None:
    user, admin = LoggedInUser(Broker({})), LoggedInUser(Broker({}, bits(ALTER)))
    assert user.may(Doing.SEE, None) and not user.may(Doing.SET, None)
    assert admin.may(Doing.SET, None)
    with pytest.raises(RegistryError, match="the whole registry") as caught:
        check_may(user, Doing.SET, None)
    assert (caught.value.code, caught.value.status) == (40301, 403)


def test_a_list_is_asked_for_in_few_requests_and_not_again_at_once(monkeypatch) -> None:
    monkeypatch.setattr(rights, "MOST_ASKED", 10)
    monkeypatch.setattr(rights, "MOST_KNOWN", 12)
    broker = Broker({f"t{number}": bits(READ) for number in range(25)})
    principal = LoggedInUser(broker)
    subjects = [f"t{number}-value" for number in range(25)]
    assert principal.seen(subjects) == set(subjects)
    assert [len(each) for each in broker.asked] == [10, 10, 5]
    assert principal.seen(["t3-key"]) == {"t3-key"}


def test_a_right_that_was_taken_away_counts_no_longer_than_said() -> None:
    now_s = [100.0]
    broker = Broker({"t": bits(READ)})
    principal = LoggedInUser(broker, now_s=lambda: now_s[0])
    assert principal.may(Doing.SEE, "t-value")
    broker.topics["t"] = 0
    now_s[0] += rights.AGE_S - 0.1
    assert principal.may(Doing.SEE, "t-value")
    now_s[0] += 0.2
    assert not principal.may(Doing.SEE, "t-value")
