"""Each feature in each scenario of an upgrade, from release 0.1.0 and from the commit before."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.features.mixed_cluster import (
    BEFORE,
    MixedCluster,
    check_out,
    mixed_cluster,
)
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from integration_tests.upgrades import scenarios
from integration_tests.upgrades.checks import access_rules, compaction
from integration_tests.upgrades.checks.check import Check
from integration_tests.upgrades.checks.groups import ClassicGroups, ConsumerGroups
from integration_tests.upgrades.checks.lakes import Lakes
from integration_tests.upgrades.checks.mirrors import Mirrors
from integration_tests.upgrades.checks.producers import Producers
from integration_tests.upgrades.checks.quotas import Quotas
from integration_tests.upgrades.checks.registries import Registries
from integration_tests.upgrades.checks.sinks import Sinks
from integration_tests.upgrades.checks.transactions import Transactions
from integration_tests.upgrades.checks.typed_topics import TypedTopics
from storage_engine.tests.sampling import ALL_FAULTS, in_full

FIRST = "0.1.0"
CHEAP = (
    Producers,
    Transactions,
    Sinks,
    ClassicGroups,
    ConsumerGroups,
    TypedTopics,
    access_rules.AccessRules,
    Quotas,
)
"""Checks without processes of their own."""
CHECKS = (*CHEAP, compaction.Compaction, Mirrors, Registries, Lakes)
SETTINGS = {
    **access_rules.SETTINGS,
    **compaction.SETTINGS,
    "group.min.session.timeout.ms": "3000",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
}
KILLED = "killed"


@pytest.fixture(scope="module")
def code_of(tmp_path_factory):
    """The folder with the code of a version, checked out once."""
    folders: dict[str, Path] = {}

    def folder_of(version: str) -> Path:
        if version not in folders:
            folders[version] = check_out(version, tmp_path_factory.mktemp("version") / "code")
        return folders[version]

    return folder_of


class Checks:
    """Those that are possible: more of them once the features of a cluster are raised."""

    def __init__(self, cluster: MixedCluster, kinds: tuple[type, ...]) -> None:
        self._cluster = cluster
        self._waiting: list[Check] = [kind() for kind in kinds]
        self.under_way: list[Check] = []

    def work(self) -> None:
        for each in [each for each in self._waiting if each.is_possible(self._cluster)]:
            each.initialize(self._cluster)
            self._waiting.remove(each)
            self.under_way.append(each)
        for each in self.under_way:
            each.work(self._cluster)

    def validate(self) -> None:
        for each in self.under_way:
            each.validate(self._cluster)

    def close(self) -> None:
        for each in self.under_way:
            each.close()


@contextlib.contextmanager
def checked(
    folder: Path, old: Path, kinds: tuple[type, ...]
) -> Iterator[tuple[MixedCluster, Checks]]:
    """A cluster of that version, in which all checks have begun to work."""
    with mixed_cluster(folder, SETTINGS) as cluster:
        cluster.services = old
        cluster.start(*scenarios.BROKERS, code=old)
        with contextlib.closing(Checks(cluster, kinds)) as checks:
            checks.work()
            checks.validate()
            yield cluster, checks


@pytest.mark.parametrize("version", [FIRST, pytest.param(BEFORE, marks=in_full)])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, marks=() if each is scenarios.upgraded else in_full)
        for each in scenarios.SCENARIOS
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_every_feature_goes_on(tmp_path, code_of, scenario, version):
    old = code_of(version)
    with checked(tmp_path / "cluster", old, CHECKS if ALL_FAULTS else CHEAP) as (cluster, checks):
        scenario(cluster, old, checks.work)
        checks.validate()
        if scenario is scenarios.upgraded:
            assert {type(each) for each in checks.under_way} == set(CHECKS if ALL_FAULTS else CHEAP)


@in_full
@pytest.mark.parametrize("moment", scenarios.MOMENTS, ids=lambda moment: moment.__name__)
def test_nothing_is_lost_where_a_broker_is_killed_at_each_step(tmp_path, code_of, moment):
    with checked(tmp_path / "cluster", code_of(FIRST), CHEAP) as (cluster, checks):
        create_topic(cluster, KILLED)
        with SteadyProducer(cluster.bootstrap_servers, KILLED) as producer:
            scenarios.upgraded_amid_kills(cluster, moment, checks.work)
            check_kept(cluster.bootstrap_servers, KILLED, producer)
        checks.validate()
