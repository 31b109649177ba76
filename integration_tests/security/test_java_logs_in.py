"""Kafka's own Java client logs in, with the settings that its users write."""

import subprocess
from pathlib import Path

import pytest

from integration_tests.security.secured_cluster import (
    PLAIN_SECRET,
    SECRET,
    SecuredCluster,
    properties_file,
    secured_cluster,
)
from integration_tests.support.java_clients import NEWEST, SHORT_LIVED, compiled

SOURCE = Path(__file__).with_name("JavaLogIns.java")
MODULES = "org.apache.kafka.common.security"
LIMIT_S = 300.0


def scram(cluster: SecuredCluster, listener: str, mechanism: str, password: str = SECRET):
    line = f'{MODULES}.scram.ScramLoginModule required username="bob" password="{password}";'
    return java(cluster, listener, mechanism, line)


def java(cluster: SecuredCluster, listener: str, mechanism: str, line: str):
    config = cluster.config(listener, sasl_mechanism=mechanism, sasl_jaas_config=line)
    authority = config.pop("ssl.ca.location", None)
    if authority is not None:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return config


def ways(cluster: SecuredCluster):
    plain = f'{MODULES}.plain.PlainLoginModule required username="alice" password="{PLAIN_SECRET}";'
    token = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required file="{cluster.token_file}";'
    handler = {"sasl.login.callback.handler.class": "JavaLogIns$TokenOfFile"}
    return {
        "scram-256": scram(cluster, "SASL", "SCRAM-SHA-256"),
        "scram-512-over-tls": scram(cluster, "BOTH", "SCRAM-SHA-512"),
        "plain-over-tls": java(cluster, "BOTH", "PLAIN", plain),
        "oauth": java(cluster, "SASL", "OAUTHBEARER", token) | handler,
        "wrong": scram(cluster, "SASL", "SCRAM-SHA-512", "wrong"),
    }


class Java:
    """The program with its cluster."""

    def __init__(self, cluster: SecuredCluster, class_path: str) -> None:
        self.cluster = cluster
        self._class_path = class_path

    def run(self, configs: dict[str, dict[str, str]], *, for_ms: int = 0) -> dict[str, str]:
        """What it says of each of these settings."""
        files = {
            str(properties_file(self.cluster.folder / f"{name}.properties", config)): name
            for name, config in configs.items()
        }
        output = subprocess.run(
            ["java", *SHORT_LIVED, "-cp", self._class_path, "JavaLogIns", str(for_ms), *files],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert output.returncode == 0, output.stdout + output.stderr
        said = (line.partition(": ") for line in output.stdout.splitlines())
        return {files[file]: text for file, _, text in said if file in files}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    class_path = compiled(SOURCE, NEWEST, tmp_path_factory.mktemp("classes"))
    with secured_cluster(tmp_path_factory.mktemp("java")) as cluster:
        cluster.write_token("carol")
        yield Java(cluster, class_path)


def test_java_writes_by_every_way_in_and_not_with_a_wrong_password(program):
    said = program.run(ways(program.cluster))
    wrong = said.pop("wrong")
    assert {name: text.partition(",")[0] for name, text in said.items()} == dict.fromkeys(
        said, "written"
    )
    assert len(said) == 4
    assert wrong.startswith("SaslAuthenticationException: authentication failed")
    assert "SCRAM-SHA-512" in wrong


def test_java_logs_in_again_over_the_same_connection(program):
    """A session at this listener lasts two seconds."""
    said = program.run({"again": scram(program.cluster, "BRIEF", "SCRAM-SHA-256")}, for_ms=6000)
    assert said["again"].startswith("written, connections closed ")
    assert int(said["again"].rpartition(" ")[2]) <= 1, "but for the one to the first broker asked"
