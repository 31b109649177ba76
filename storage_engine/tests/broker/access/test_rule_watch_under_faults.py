"""Whatever befalls brokers and their sessions while rules are changed, all of them have in the end
the rules that ZooKeeper has, and every change that was confirmed is among them."""

from random import Random

import pytest

from storage_engine.broker.access import rule_watch
from storage_engine.broker.access.rule_watch import AclZNode
from storage_engine.core.ports import TransportError
from storage_engine.core.security.acl_rules import (
    AclBinding,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.tests.broker.access.rule_requests import send_create, send_delete
from storage_engine.tests.broker.guards.guarded_cluster import authorizer_of
from storage_engine.tests.sampling import examples

BROKERS = (1, 2, 3)
STEPS = 40


def _stored(cluster) -> set[AclBinding]:
    """What ZooKeeper has."""
    found = set()
    for pattern_type in PatternType:
        for kind in ResourceType:
            parent = AclZNode.parent(kind, pattern_type)
            for path in list(cluster.zookeeper.nodes):
                folder, _, name = path.rpartition("/")
                if folder == parent:
                    pattern = ResourcePattern(kind, name, pattern_type)
                    node = AclZNode.decode(path, cluster.zookeeper.data(path))
                    found |= {AclBinding(pattern, rule) for rule in node.rules}
    return found


class _Administrator:
    """Creates and deletes rules at random brokers."""

    def __init__(self, cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._kept: list[tuple[str, list]] = []
        """Principals whose rules nobody deletes, each with the answer to its creation."""

    def confirmed(self) -> set[str]:
        """Of the kept ones those whose creation was confirmed."""
        return {
            principal
            for principal, answers in self._kept
            if answers
            and not isinstance(answers[0], TransportError)
            and not answers[0].results[0].error_code
        }

    def act(self) -> None:
        random = self._random
        name, user = random.choice("abcd"), f"User:u{random.randrange(4)}"
        pattern_type = random.choice((3, 4))
        up = [b for b in BROKERS if self._cluster[b].serving]
        if not up:
            return
        broker = random.choice(up)
        is_kept = random.random() < 0.3
        if is_kept or random.random() < 0.6:
            if is_kept:
                user = f"User:kept{len(self._kept)}"
            rule = {"resource_name": name, "resource_pattern_type": pattern_type, "principal": user}
            answers = send_create(self._cluster, rule, broker=broker)
            if is_kept:
                self._kept.append((user, answers))
        else:
            found = {
                "resource_type_filter": 2,
                "resource_name_filter": name,
                "pattern_type_filter": pattern_type,
                "principal_filter": user,
            }
            send_delete(self._cluster, found, broker=broker)


def _trouble(cluster, paused: set[int], random: Random) -> None:
    """Something happens to a broker."""
    broker = cluster[random.choice(BROKERS)]
    match random.randrange(6):
        case 0 if broker.up:
            paused.discard(broker.id)
            broker.kill(session_ends_at_once=random.random() < 0.5)
        case 1 if not broker.up:
            broker.begin()
        case 2 if broker.up and broker.id not in paused:
            paused.add(broker.id)
            broker.pause()
        case 3 if broker.id in paused:
            paused.discard(broker.id)
            broker.resume()
        case 4 if broker.up and broker.id not in paused:
            broker.session.cut_off(arrives=random.random() < 0.5)
        case 5 if broker.up and broker.id not in paused:
            broker.session.reconnect()


@pytest.mark.parametrize("seed", range(examples(30)))
def test_all_brokers_end_with_the_rules_of_zookeeper(cluster, monkeypatch, seed) -> None:
    monkeypatch.setattr(rule_watch, "KEEP_MS", 15_000)
    random = Random(seed)
    paused: set[int] = set()
    administrator = _Administrator(cluster, random)
    for _ in range(STEPS):
        administrator.act()
        if random.random() < 0.4:
            _trouble(cluster, paused, random)
        cluster.loop.run_for(random.choice((1, 50, 1_000, 9_000)))
    for number in paused:
        cluster[number].resume()
    for broker in cluster.brokers:
        if broker.up:
            broker.session.reconnect()
        else:
            broker.begin()
    cluster.loop.run_until(
        lambda: all(broker.serving and broker.broker_epoch > 0 for broker in cluster.brokers),
        limit_ms=60_000,
    )
    cluster.loop.run_for(10_000)
    stored = _stored(cluster)
    assert administrator.confirmed() <= {binding.rule.principal for binding in stored}
    assert administrator.confirmed()
    assert {broker: set(authorizer_of(cluster, broker).index.bindings()) for broker in BROKERS} == (
        dict.fromkeys(BROKERS, stored)
    )
    # A change at the end reaches everybody within a second.
    answer = cluster.answer(send_create(cluster, {"resource_name": "last"}))
    assert not isinstance(answer, TransportError)
    cluster.loop.run_for(1_000)
    pattern = ResourcePattern(ResourceType.TOPIC, "last")
    assert all(authorizer_of(cluster, broker).index.rules(pattern) for broker in BROKERS)
