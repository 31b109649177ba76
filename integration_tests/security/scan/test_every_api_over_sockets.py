"""Every API in every version that is served, over sockets, as every kind of principal:

    who does not log in, half, or with a wrong password     not a byte in answer
    who comes by the open listener, without any right       refused; nothing shown
    who has logged in, without any right                    the same
    who has all rights that the request asks for but one    the same
    who has exactly these rights                            not refused
    a super user                                            not refused

and nothing in the cluster is changed by those who may not.
"""

from collections.abc import Callable

from integration_tests.security.scan.scanned_cluster import (
    differences,
    scanned_cluster,
    wait_for_state,
)
from integration_tests.security.scan.scanned_request import Scanned
from integration_tests.security.scan.scanning import (
    BEFORE_LOG_IN,
    REQUESTS,
    Scan,
    names,
    users,
)
from storage_engine.broker.guards.table import GUARD_ROWS
from storage_engine.protocol.apis.registry import APIS, name_of

UNGUARDED = "integration_tests.security.scan.unguarded_broker"


def test_every_version_of_every_api_has_a_request() -> None:
    scanned = {(each.key, version) for each in REQUESTS for version in each.versions}
    served = {
        (key, version)
        for key, entry in APIS.items()
        for version in range(entry.versions.min_version, entry.versions.max_version + 1)
        if key not in BEFORE_LOG_IN
    }
    missing = {(name_of(key), version) for key, version in served - scanned}
    assert not missing, "add a request to integration_tests/security/scan/"


def test_nobody_gets_or_changes_what_it_may_not(tmp_path) -> None:
    with scanned_cluster(tmp_path, users()) as cluster:
        scan = Scan(cluster)
        before = cluster.state()
        assert "\n".join(map(str, scan.of_those_who_may_not())) == ""
        assert differences(before, cluster.state()) == set()

        # What was refused would have had an effect.
        without_effect = set()

        def note_change(scanned: Scanned, send: Callable[[], None]) -> None:
            before = cluster.state() if scanned.changes else {}
            send()
            if scanned.changes and not wait_for_state(cluster, before):
                without_effect.add(str(scanned))

        assert "\n".join(map(str, scan.of_those_who_may(note_change=note_change))) == ""
        assert without_effect == set()


def test_a_super_user_is_shown_what_is_hidden_from_others(tmp_path) -> None:
    with scanned_cluster(tmp_path, {}) as cluster:
        findings, shown = Scan(cluster).of_the_super_user()
        assert "\n".join(map(str, findings)) == ""
        assert shown >= {str(scanned) for scanned in REQUESTS if scanned.shows}


def test_the_scan_finds_each_guard_that_is_left_out(tmp_path) -> None:
    with scanned_cluster(tmp_path, users(), program=UNGUARDED) as cluster:
        before = cluster.state()
        findings = Scan(cluster).of_those_who_may_not()
        assert differences(before, cluster.state())
    found = {finding.request.partition("-")[0] for finding in findings}
    guarded = {key for key in APIS if GUARD_ROWS[key].guard is not None}
    # What that guard adds to the answer is what the client may do: nothing is hidden without it.
    assert names(guarded) - found == {"DescribeCluster"}
    rights = {str(scanned) for scanned in REQUESTS if scanned.rights}
    assert rights - {finding.request for finding in findings} == set()
