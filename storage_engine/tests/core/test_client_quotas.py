"""The most specific quota counts, and quotas are read from ZooKeeper: KIP-55."""

import itertools

import pytest

from storage_engine.core.errors import KafkaError
from storage_engine.core.quotas import (
    CACHED_MAX,
    DEFAULT,
    KEPT_MAX,
    ClientQuotas,
    Limit,
    QuotaEntity,
    QuotaKey,
    Sharing,
    Usage,
    checked,
    quotas_in,
)

PRODUCED = QuotaKey.PRODUCED

BY_PRECEDENCE = (
    (QuotaEntity("alice", "app"), Sharing("alice", "app")),
    (QuotaEntity("alice", DEFAULT), Sharing("alice", "app")),
    (QuotaEntity("alice"), Sharing("alice", "")),
    (QuotaEntity(DEFAULT, "app"), Sharing("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), Sharing("alice", "app")),
    (QuotaEntity(DEFAULT), Sharing("alice", "")),
    (QuotaEntity(None, "app"), Sharing("", "app")),
    (QuotaEntity(None, DEFAULT), Sharing("", "app")),
)


def test_of_several_quotas_the_most_exact_counts() -> None:
    for (first, sharing), (second, _) in itertools.combinations(BY_PRECEDENCE, 2):
        quotas = ClientQuotas()
        quotas.set(second, {PRODUCED: 2.0})
        quotas.set(first, {PRODUCED: 1.0})
        assert quotas.limit(PRODUCED, "alice", "app") == Limit(1.0, sharing)
        quotas.set(first, {QuotaKey.REQUESTS: 1.0})
        found = quotas.limit(PRODUCED, "alice", "app")
        assert found is not None
        assert found.bound == 2.0


def test_quotas_of_others_do_not_count() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity("bob"), {PRODUCED: 1.0})
    quotas.set(QuotaEntity(None, "other"), {PRODUCED: 1.0})
    assert quotas.limit(PRODUCED, "alice", "app") is None
    assert quotas.limit(QuotaKey.CONSUMED, "bob", "app") is None


def test_a_client_without_an_id_has_the_default() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity(None, DEFAULT), {PRODUCED: 1.0})
    assert quotas.limit(PRODUCED, "alice", "") == Limit(1.0, Sharing("", ""))


def test_a_quota_that_is_removed_counts_no_longer() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity("alice"), {PRODUCED: 1.0})
    assert quotas.limit(PRODUCED, "alice", "app") is not None
    quotas.set(QuotaEntity("alice"), {})
    assert quotas.limit(PRODUCED, "alice", "app") is None
    assert not quotas.keys


def test_an_address_has_its_own_or_the_default() -> None:
    quotas = ClientQuotas()
    assert quotas.limit_of_ip("10.0.0.1") is None
    quotas.set(QuotaEntity(ip=DEFAULT), {QuotaKey.CONNECTIONS: 5.0})
    quotas.set(QuotaEntity(ip="10.0.0.1"), {QuotaKey.CONNECTIONS: 50.0})
    assert (quotas.limit_of_ip("10.0.0.1"), quotas.limit_of_ip("10.0.0.2")) == (50.0, 5.0)


def test_what_is_kept_of_clients_is_bounded() -> None:
    quotas = ClientQuotas()
    quotas.set(QuotaEntity(None, DEFAULT), {PRODUCED: 1.0})
    usage: Usage[str] = Usage(1.0)
    for number in range(CACHED_MAX + 100):
        assert quotas.limit(PRODUCED, "alice", str(number)) is not None
        usage.take(str(number), 1.0, 1.0, 0)
    assert len(quotas._limits) <= CACHED_MAX
    assert len(usage) <= KEPT_MAX
    for _ in range(KEPT_MAX):
        usage.take("one", 1.0, 0.001, 60_000)
    assert len(usage) == 1


NAMES = ("alice", "CN=app,O=Example", "a/b", "<default>", "%41", "ü")


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_found_again_by_its_path(name: str) -> None:
    for entity in (
        QuotaEntity(name),
        QuotaEntity(name, name),
        QuotaEntity(name, DEFAULT),
        QuotaEntity(None, name),
        QuotaEntity(ip=name),
    ):
        assert QuotaEntity.parse(entity.path) == entity
        assert QuotaEntity.of_request(entity.parts) == entity
    assert QuotaEntity(DEFAULT, DEFAULT).path == "users/<default>/clients/<default>"


@pytest.mark.parametrize(
    "path", ["topics/t", "users", "users/", "users/a/clients", "users/a/other/b", "clients/a/b", ""]
)
def test_a_path_of_another_kind_is_no_entity(path: str) -> None:
    assert QuotaEntity.parse(path) is None


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "neither a user"),
        ([("group", "g")], "'group' is no type"),
        ([("user", "a"), ("user", "b")], "stands twice"),
        ([("user", "")], "is empty"),
        ([("user", "a" * 256)], "more than 255"),
        ([("user", "a"), ("ip", "1.2.3.4")], "can't be combined"),
    ],
)
def test_a_wrong_entity_is_refused(parts: list[tuple[str, str | None]], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason):
        QuotaEntity.of_request(parts)


@pytest.mark.parametrize(
    ("entity", "name", "value", "reason"),
    [
        (QuotaEntity("a"), "producer_byte_rat", 1.0, "there are producer_byte_rate, consumer"),
        (QuotaEntity("a"), "connection_creation_rate", 1.0, "can't be set for user a"),
        (QuotaEntity(ip="1.1.1.1"), "producer_byte_rate", 1.0, "can't be set for ip 1.1.1.1"),
        (QuotaEntity("a"), "producer_byte_rate", 0.0, "must be above 0"),
        (QuotaEntity("a"), "producer_byte_rate", 1.5, "must be a whole number"),
        (QuotaEntity("a"), "request_percentage", float("nan"), "must be above 0"),
        (QuotaEntity("a"), "request_percentage", float("inf"), "must be finite"),
    ],
)
def test_a_wrong_quota_is_refused(
    entity: QuotaEntity, name: str, value: float, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason):
        checked(entity, name, value)


def test_a_quota_in_zookeeper_that_can_not_be_read_is_told() -> None:
    settings = {
        "SCRAM-SHA-256": "salt=…",
        "producer_byte_rate": "1048576.0",
        "consumer_byte_rate": "much",
        "request_percentage": "-1",
    }
    quotas, problems = quotas_in(settings)
    assert quotas == {PRODUCED: 1048576.0}
    assert problems == [
        "consumer_byte_rate=much is not a number",
        "request_percentage=-1 must be above 0",
    ]
