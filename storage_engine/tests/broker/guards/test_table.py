"""Each row of the table of guards, allowed and denied, at a real broker in simulated time."""

from pathlib import Path

import pytest

from storage_engine.broker.guards.table import GUARD_ROWS
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.principal import ANONYMOUS, Principal
from storage_engine.protocol.apis.registry import APIS, INTERNAL_RANGES, name_of
from storage_engine.tests.broker.guards.api_cases import CASES, Case
from storage_engine.tests.broker.guards.guarded_cluster import (
    ADMIN,
    BOB,
    REFUSALS,
    allow_only,
    codes_in,
    come_as,
    guarded_cluster,
    wait_for_coordinators,
)
from storage_engine.tests.protocol.apis.struct_classes import api_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = guarded_cluster(tmp_path_factory.mktemp("guarded"))
    assert not made.create_topic("t").error_code
    made.produced(TopicPartition("t", 0), b"first")
    wait_for_coordinators(made)
    yield made
    made.close()


def _answer(cluster, case: Case, principal: Principal = BOB):
    if case.key not in cluster[1].parts.dispatcher.advertised and case.key not in INTERNAL_RANGES:
        pytest.skip("this broker does not serve it")
    come_as(cluster, principal)
    try:
        spec, _ = api_of(case.key)
        return cluster.answer(cluster.ask(1, spec, case.version, case.request()))
    finally:
        come_as(cluster, ADMIN)


def test_every_api_has_a_row() -> None:
    missing = [name_of(key) for key in APIS if key not in GUARD_ROWS]
    assert not missing, "add what they ask for to broker/guards/table.py"


def test_the_document_says_what_each_request_asks_for() -> None:
    document = (Path(__file__).parents[4] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = {key: f"| {name_of(key)} | {GUARD_ROWS[key].asks} |" for key in APIS}
    missing = [row for _, row in sorted(rows.items()) if row not in document.splitlines()]
    assert not missing


def test_every_row_has_a_case() -> None:
    cases = {case.key for case in CASES}
    asking = {key for key in APIS if GUARD_ROWS[key].guard is not None}
    assert {name_of(key) for key in asking - cases} == set()


@pytest.mark.parametrize("case", [case for case in CASES if case.rights], ids=str)
def test_who_lacks_one_of_the_rights_is_refused(cluster, case: Case) -> None:
    for lacking in case.rights:
        allow_only(cluster, [right for right in case.rights if right != lacking])
        assert codes_in(_answer(cluster, case)) & REFUSALS == {case.refusal(lacking)}


@pytest.mark.parametrize("case", [case for case in CASES if case.rights], ids=str)
def test_who_has_no_rights_is_refused(cluster, case: Case) -> None:
    allow_only(cluster, [])
    assert codes_in(_answer(cluster, case)) & REFUSALS


@pytest.mark.parametrize("case", [case for case in CASES if case.rights], ids=str)
def test_who_has_not_logged_in_is_refused(cluster, case: Case) -> None:
    allow_only(cluster, case.rights)
    assert codes_in(_answer(cluster, case, ANONYMOUS)) & REFUSALS


# After the others, since what is allowed may be done.
@pytest.mark.parametrize("case", CASES, ids=str)
def test_who_has_all_rights_is_not_refused(cluster, case: Case) -> None:
    allow_only(cluster, case.rights)
    assert not codes_in(_answer(cluster, case)) & REFUSALS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_super_user_is_never_refused(cluster, case: Case) -> None:
    allow_only(cluster, [])
    assert not codes_in(_answer(cluster, case, ADMIN)) & REFUSALS
