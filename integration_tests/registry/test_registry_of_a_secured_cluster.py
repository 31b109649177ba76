"""Users of a secured cluster log in at the registry, and their rights on topics are those on the
topics' subjects."""

import json
import ssl
import uuid
from collections.abc import Iterator

import pytest

from headrace_registry.access import rights
from headrace_registry.registry_settings import RegistrySettings
from headrace_registry.tests.registry_support import INT, LONG, STRING, Client, running_registry
from integration_tests.support.command_line import succeed_here
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.settings import read_settings_file
from storage_engine.tools.client_settings import connect, security_in
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    request = UpRequest(brokers=1, port=0, is_secure=True)
    with LocalCluster.running(tmp_path_factory.mktemp("secured"), request) as running:
        yield running


def credentials(cluster: LocalCluster, name: str) -> tuple[str, str]:
    settings = read_settings_file(cluster.directory / f"{name}.properties")
    return settings["sasl.username"], settings["sasl.password"]


@pytest.fixture(scope="module")
def url(cluster) -> Iterator[str]:
    config = cluster.admin_config(cluster.state)
    settings = RegistrySettings(
        bootstrap_servers=cluster.bootstrap_servers,
        security=security_in(config),
        port=0,
        host="127.0.0.1",
        certificate=cluster.directory / "tls" / "broker-1.pem",
        key=cluster.directory / "tls" / "broker-1.pem",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rights, "AGE_S", 0.0)
        with running_registry(settings, read_settings_file(config)) as address:
            yield address


@pytest.fixture(scope="module")
def admin(url, cluster) -> Iterator[Client]:
    client = client_of(url, cluster, credentials(cluster, "admin"))
    yield client
    client.close()


@pytest.fixture
def app(url, cluster) -> Iterator[Client]:
    client = client_of(url, cluster, credentials(cluster, "app"))
    yield client
    client.close()


def client_of(url, cluster, log_in) -> Client:
    ca = str(cluster.directory / "tls" / "ca.pem")
    return Client(url, log_in, verify=ssl.create_default_context(cafile=ca))


@pytest.fixture
def topic(cluster) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    with connect(cluster.bootstrap_servers, cluster.admin_config(cluster.state)) as brokers:
        create_topic(brokers, name, 1, 1)
    return name


def allow(cluster: LocalCluster, operation: str, *resource: str) -> None:
    change_rules(cluster, "add", "--allow", app_of(cluster), "--operation", operation, *resource)


def app_of(cluster: LocalCluster) -> str:
    return f"User:{credentials(cluster, 'app')[0]}"


def change_rules(cluster: LocalCluster, verb: str, *arguments: str) -> None:
    succeed_here(
        *("acls", verb, "--bootstrap-server", cluster.bootstrap_servers),
        *("--command-config", cluster.admin_config(cluster.state)),
        *arguments,
    )


def test_nothing_is_told_without_a_log_in_or_with_a_wrong_one(url, cluster) -> None:
    for log_in in (None, ("admin", "wrong"), ("nobody", "x"), ("", "x")):
        stranger = client_of(url, cluster, log_in)
        assert stranger.refused("GET", "/subjects") == (401, 401)
        answer = stranger.ask("GET", "/subjects")
        assert answer.headers["www-authenticate"].startswith("Basic ")
        stranger.close()


def test_too_many_wrong_log_ins_are_told_to_wait(url, cluster) -> None:
    stranger = client_of(url, cluster, ("tried", "wrong"))
    codes = [stranger.refused("GET", "/subjects")[0] for _ in range(7)]
    assert codes[0] == 401 and codes[-1] == 429
    stranger.close()


def test_a_user_sees_and_registers_what_their_topics_allow(admin, app, cluster, topic) -> None:
    subject = f"{topic}-value"
    text = json.dumps({"type": "enum", "name": "E", "symbols": [topic]})
    hidden_id = admin.register(subject, text)
    versions = f"/subjects/{subject}/versions"
    assert subject not in app.get("/subjects")
    assert app.get("/schemas", subjectPrefix=subject) == []
    assert app.refused("GET", versions) == (404, 40401)
    assert app.refused("GET", f"{versions}/1") == (404, 40401)
    assert app.refused("POST", f"/subjects/{subject}", {"schema": text}) == (404, 40401)
    assert app.refused("GET", f"/schemas/ids/{hidden_id}") == (404, 40403)
    assert app.refused("GET", f"/schemas/ids/{hidden_id}/versions") == (404, 40403)
    assert app.refused("GET", f"/config/{subject}") == (404, 40408)
    assert app.refused("POST", versions, {"schema": text}) == (403, 40301)
    assert app.refused("DELETE", f"/subjects/{subject}") == (404, 40401)
    allow(cluster, "Read", "--topic", topic)
    assert subject in app.get("/subjects")
    assert app.get(f"/schemas/ids/{hidden_id}/subjects") == [subject]
    assert app.get(versions) == [1]
    assert app.refused("POST", versions, {"schema": text}) == (403, 40301)
    assert app.refused("DELETE", f"/subjects/{subject}") == (403, 40301)
    assert app.refused("PUT", f"/config/{subject}", {"compatibility": "NONE"}) == (403, 40301)
    allow(cluster, "Write", "--topic", topic)
    assert app.register(subject, text) == hidden_id
    assert app.refused("DELETE", f"/subjects/{subject}") == (403, 40301)
    allow(cluster, "Alter", "--topic", topic)
    assert app.put(f"/config/{subject}", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    allow(cluster, "Delete", "--topic", topic)
    assert app.delete(f"/subjects/{subject}") == [1]


def test_a_schema_that_is_hidden_can_not_be_referred_to(admin, app, cluster, topic) -> None:
    own = f"{topic}-value"
    allow(cluster, "Write", "--topic", topic)
    admin.register("hidden", json.dumps({"type": "fixed", "name": "Hidden", "size": 3}))
    reference = {"name": "Hidden", "subject": "hidden", "version": 1}

    def told(client: Client, subject: str) -> str:
        body = {"schema": INT, "references": [{**reference, "subject": subject}]}
        path = f"/subjects/{own}/versions"
        assert client.refused("POST", path, body) == (422, 42201)
        return str(client.ask("POST", path, body).json()["message"])

    assert told(app, "hidden") == told(admin, "absent").replace("absent", "hidden")


def test_other_subjects_and_the_whole_registry_follow_the_rights_on_the_cluster(
    admin, app, cluster
) -> None:
    name = f"com.example.R{uuid.uuid4().hex[:8]}"
    admin.register(name, STRING)
    assert name not in app.get("/subjects")
    assert app.refused("PUT", "/config", {"compatibility": "NONE"}) == (403, 40301)
    assert app.refused("PUT", "/mode", {"mode": "READONLY"}) == (403, 40301)
    assert app.get("/config") == {"compatibilityLevel": "BACKWARD"}
    allow(cluster, "Describe", "--cluster")
    assert name in app.get("/subjects")
    assert app.refused("POST", f"/subjects/{name}/versions", {"schema": LONG}) == (403, 40301)
    allow(cluster, "Alter", "--cluster")
    app.put(f"/config/{name}", {"compatibility": "NONE"})
    app.register(name, LONG)
    change_rules(cluster, "remove", "--principal", app_of(cluster), "--cluster")
    assert name not in app.get("/subjects")
