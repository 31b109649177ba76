"""`zoo.cfg`: what is written for a server alone, for one of an ensemble, and with TLS."""

from pathlib import Path

import pytest

from storage_engine.zookeeper.server.config import (
    EnsembleServer,
    ServerConfigError,
    ServerTls,
    format_settings,
    is_as_written,
    members_in,
    parse_ensemble,
    production_settings,
    sealed,
    with_overrides,
)

FOLDER = Path("/var/zk")
THREE = parse_ensemble("1=h1,2=h2,3=h3:2889:3889")
TLS = ServerTls(keystore=Path("/k.pem"), truststore=Path("/ca.pem"))


def settings_of(**changes) -> dict[str, str]:
    given = {"host": "127.0.0.1", "port": 2181, "tls": None, "members": (), **changes}
    return production_settings(FOLDER, **given)


def test_an_ensemble_has_the_usual_ports_unless_others_are_given():
    assert (
        EnsembleServer(id=1, host="h1", peer_port=2888, election_port=3888),
        EnsembleServer(id=2, host="h2", peer_port=2888, election_port=3888),
        EnsembleServer(id=3, host="h3", peer_port=2889, election_port=3889),
    ) == THREE
    text = format_settings(settings_of(members=THREE))
    assert members_in(text) == {1: "h1:2888:3888", 2: "h2:2888:3888", 3: "h3:2889:3889"}
    assert members_in(format_settings(settings_of())) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("h1,h2,h3", "is not of the form 1=HOST,2=HOST,3=HOST"),
        ("1=h1,2=,3=h3", "is not of the form"),
        ("1=h1:2888,2=h2,3=h3", "is not of the form"),
        ("1=h1:x:3888,2=h2,3=h3", "is not of the form"),
        ("1=h1:0:3888,2=h2,3=h3", "is not of the form"),
        ("1=h1,2=h2,²=h3", "is not of the form"),
        ("1=h1,2=h2,256=h3", "the ids of servers are 1 to 255"),
        ("1=h1,2=h2,2=h3", "has an id twice"),
        ("1=h1,2=h1,3=h3", "has an address twice: servers on one host need ports of their own"),
        ("1=h1,2=h2", "has 2 servers: give 3 to 9"),
    ],
)
def test_an_ensemble_that_is_none_is_told(text, problem):
    with pytest.raises(ServerConfigError) as caught:
        parse_ensemble(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_with_tls_no_port_is_without_it():
    settings = settings_of(tls=TLS, members=THREE)
    assert settings["secureClientPort"] == "2181"
    assert "clientPort" not in settings
    assert settings["ssl.clientAuth"] == settings["ssl.quorum.clientAuth"] == "need"
    assert settings["sslQuorum"] == "true"
    assert settings["ssl.quorum.keyStore.location"] == "/k.pem"
    assert settings["ssl.quorum.trustStore.location"] == "/ca.pem"


def test_sessions_of_two_seconds_are_possible():
    settings = settings_of()
    assert int(settings["minSessionTimeout"]) <= 2_000
    assert int(settings["tickTime"]) <= 500


@pytest.mark.parametrize("key", ["dataDir", "clientPort", "server.4", "ssl.clientAuth"])
def test_what_options_decide_is_no_setting(key):
    with pytest.raises(ServerConfigError, match=f"'--set {key}=…' is decided by"):
        with_overrides(settings_of(), [(key, "x")])


def test_other_settings_are_added_or_replaced():
    settings = with_overrides(settings_of(), [("snapCount", "7"), ("dataLogDir", "/fast")])
    assert settings["snapCount"] == "7"
    assert settings["dataLogDir"] == "/fast"


def test_a_change_by_hand_breaks_the_seal():
    content = sealed(format_settings(settings_of()))
    assert is_as_written(content)
    assert not is_as_written(content.replace("tickTime=200", "tickTime=2000"))
    assert not is_as_written(content + "tickTime=2000\n")
    assert not is_as_written("")


def test_backslashes_of_a_path_reach_zookeeper():
    assert format_settings({"dataDir": "/a\\b"}) == "dataDir=/a\\\\b\n"
