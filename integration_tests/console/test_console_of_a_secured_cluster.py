"""Each user of a secured cluster sees and changes what the cluster lets them, and no more."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import Browser, running_console, within
from integration_tests.support.command_line import fail, start, succeed_here
from storage_engine.client.admin.topics import alter_broker_configs
from storage_engine.client.cluster import Cluster
from storage_engine.client.settings import read_settings_file
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tests.sampling import in_full
from storage_engine.tools.client_settings import security_in
from storage_engine.tools.local.certificates import BROKER_DAYS, make_certificate
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

PROMISED_S = 15.0
"""Five seconds, and three times that for a machine that is slow or does other things, too."""
TOKEN = "token-of-the-queries"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    request = UpRequest(brokers=1, port=0, is_secure=True)
    with LocalCluster.running(tmp_path_factory.mktemp("secured"), request) as running:
        yield running


def credentials(cluster: LocalCluster, name: str) -> dict[str, str]:
    settings = read_settings_file(cluster.directory / f"{name}.properties")
    return {"user": settings["sasl.username"], "password": settings["sasl.password"]}


@pytest.fixture(scope="module")
def url(cluster) -> Iterator[str]:
    settings = ConsoleSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        security=security_in(cluster.admin_config(cluster.state)),
        progress_token=Secret(TOKEN),
        port=0,
    )
    with running_console(settings) as address:
        yield address


@pytest.fixture(scope="module")
def admin(url, cluster) -> Iterator[Browser]:
    browser = Browser(url, **credentials(cluster, "admin"))
    yield browser
    browser.close()


@pytest.fixture
def app(url, cluster) -> Iterator[Browser]:
    browser = Browser(url, **credentials(cluster, "app"))
    yield browser
    browser.close()


def test_nothing_is_shown_before_the_log_in_and_a_wrong_password_is_told(url, cluster) -> None:
    stranger = Browser(url)
    assert stranger.session["mechanism"].startswith("SCRAM-SHA-")
    assert stranger.ask("/topics").status_code == 401
    wrong = {**credentials(cluster, "admin"), "password": "wrong"}
    refused = stranger.client.post("/login", json=wrong)
    assert refused.status_code == 401 and "did not accept" in refused.text
    stranger.close()


def test_each_user_sees_their_own_and_no_cache_is_shared(admin, app, cluster) -> None:
    name = f"secret-{uuid.uuid4().hex[:8]}"
    admin.post("/topics", {"name": name, "partitions": 1})
    assert admin.get("/topics", filter=name)["total"] == 1
    assert app.session["user"] == credentials(cluster, "app")["user"]
    assert app.get("/topics", filter=name)["total"] == 0
    assert app.ask(f"/topics/{name}").status_code == 404
    assert app.ask(f"/topics/{name}/messages").status_code in (403, 404)
    for path in ("/access/users", "/access/acls", "/access/quotas"):
        assert app.ask(path).status_code == 403, path
    refused = app.change("POST", "/topics", {"name": f"{name}-2", "partitions": 1})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")


def test_users_rules_and_certificates_are_shown_to_who_may_see_them(admin) -> None:
    users = {row["user"]: row["mechanisms"] for row in admin.get("/access/users")["rows"]}
    assert set(users) == {"admin", "app", "broker"}
    assert users["app"] == ["SCRAM-SHA-256 (8192)", "SCRAM-SHA-512 (8192)"]
    assert "rows" in admin.get("/access/acls")
    broker = within(
        PROMISED_S,
        lambda: next(
            (b for b in admin.get("/overview")["brokers"] if b["certificate_expires_ms"]), None
        ),
        "the certificate of the broker",
    )
    assert broker["certificate_expires_ms"] > admin.get("/overview")["as_of_ms"]


def test_a_certificate_near_its_end_is_told_until_it_is_renewed(url, cluster) -> None:
    renew(cluster, days=5)
    browser = Browser(url, **credentials(cluster, "admin"))
    found = within(PROMISED_S, lambda: certificate_problem(browser), "the certificate")
    assert found["what"].startswith("The certificate of broker 1 expires in 5 days.")
    assert found["severity"] == "critical" and "ssl.keystore.location" in found["do"]
    renew(cluster)
    within(2 * PROMISED_S, lambda: not certificate_problem(browser), "it was renewed")
    browser.close()


def certificate_problem(browser: Browser) -> Any:
    problems = browser.get("/overview")["problems"]
    return next((each for each in problems if each["kind"] == "certificate"), None)


def renew(cluster: LocalCluster, *, days: int = BROKER_DAYS) -> None:
    """As docs/security.md says: another certificate in the file, whose path is set again."""
    tls = cluster.directory / "tls"
    (path,) = tls.glob("broker-1.pem")
    make_certificate(tls, "next.pem", "127.0.0.1", days=days)
    (tls / "next.pem").replace(path)
    security = security_in(cluster.admin_config(cluster.state))
    with Cluster(cluster.bootstrap_servers, security=security) as client:
        key = "listener.name.sasl_ssl.ssl.keystore.location"
        alter_broker_configs(client, "1", {key: str(path)})


def test_who_loses_the_right_to_a_topic_stops_to_see_it_in_the_same_session(
    admin, app, cluster
) -> None:
    name = f"lent-{uuid.uuid4().hex[:8]}"
    admin.post("/topics", {"name": name, "partitions": 1})
    admin.post(f"/topics/{name}/records", {"value": {"text": "secret"}})
    user = f"User:{credentials(cluster, 'app')['user']}"
    change_rules(cluster, "add", "--allow", user, "--operation", "Read", "--topic", name)
    within(PROMISED_S, lambda: app.get("/topics", filter=name)["total"] == 1, "it may see it")
    assert app.get(f"/topics/{name}/messages")["rows"][0]["value"]["text"] == "secret"
    events = app.events(f"/topics/{name}/messages/stream", tail=1)
    next(events)
    change_rules(cluster, "remove", "--principal", user, "--topic", name)
    assert app.ask(f"/topics/{name}/messages").status_code in (403, 404)
    within(PROMISED_S, lambda: app.get("/topics", filter=name)["total"] == 0, "no more")
    admin.post(f"/topics/{name}/records", {"value": {"text": "after"}})
    seen = []
    for kind, document in events:
        seen += [row["value"]["text"] for row in document.get("rows", ())]
        if kind in ("trouble", "failed", "end"):
            break
    assert "after" not in seen
    events.close()


def change_rules(cluster: LocalCluster, action: str, *rule: str) -> None:
    file = cluster.directory / "admin.properties"
    servers = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", file)
    succeed_here("acls", action, *rule, *servers)


def test_a_session_is_no_key_to_another(url, admin, app) -> None:
    shown = admin.change("POST", "/groups/none/reset/preview", {"to": "earliest"})
    assert shown.status_code in (400, 404)
    mixed = app.client.post(
        "/topics", json={"name": "x"}, headers={"X-CSRF-Token": admin.session["csrf"]}
    )
    assert mixed.json()["error"]["code"] == "csrf"
    app.change("POST", "/logout", {})
    assert app.ask("/topics").status_code == 401
    assert admin.ask("/topics").status_code == 200


def test_a_search_ends_with_the_session_that_began_it(admin, url, cluster) -> None:
    name = f"followed-{uuid.uuid4().hex[:8]}"
    admin.post("/topics", {"name": name, "partitions": 1})
    browser = Browser(url, **credentials(cluster, "admin"))
    events = browser.events(f"/topics/{name}/messages/stream", tail=1)
    assert next(events)[0] == "progress"
    other = Browser(url)
    other.client.cookies.update(browser.client.cookies)
    other.session = browser.session
    assert other.change("POST", "/logout", {}).status_code == 200
    last = [document for kind, document in events if kind == "failed"]
    assert last[0]["error"]["code"] == "log_in"
    browser.close()
    other.close()


def test_a_query_is_shown_only_to_who_may_see_its_topics(admin, app) -> None:
    name = f"flights-{uuid.uuid4().hex[:8]}"
    admin.post("/topics", {"name": name, "partitions": 1})
    event: dict[str, Any] = {
        "kind": "started",
        "at_ms": 1,
        "query": {"id": str(uuid.uuid4()), "run_id": str(uuid.uuid4()), "name": "delays"},
        "topics": [name],
    }
    answer = admin.client.post(
        "/queries/progress",
        json={"format": 1, "events": [event]},
        headers={"X-Headrace-Progress": "1", "Authorization": f"Bearer {TOKEN}"},
    )
    assert answer.status_code == 204
    within(PROMISED_S, lambda: admin.get("/queries")["total"] == 1, "the query")
    assert app.get("/queries")["total"] == 0
    assert app.ask(f"/queries/{event['query']['id']}").status_code == 404


@in_full
def test_another_address_needs_tls_and_a_log_in(tmp_path: Path, cluster) -> None:
    open_cluster: list[Any] = ["console", "--bootstrap-servers", "127.0.0.1:1", "--port", "0"]
    refused = fail(*open_cluster, "--address", "0.0.0.0")
    assert "needs --certificate and --key and --password-file" in refused
    password = tmp_path / "password"
    password.write_text("a long enough password")
    assert "chmod 600" in fail(*open_cluster, "--password-file", password)
    password.chmod(0o600)
    refused = fail(*open_cluster, "--address", "0.0.0.0", "--password-file", password)
    assert "needs --certificate and --key;" in refused
    certificate = next(cluster.directory.glob("tls/*.pem"))
    wrong = fail(*open_cluster, "--certificate", certificate, "--key", password)
    assert wrong.startswith("--certificate") and "can't be used" in wrong
    assert "go together" in fail(*open_cluster, "--certificate", certificate)


@in_full
def test_the_command_serves_the_cluster_of_a_folder_until_it_is_told_to_stop(cluster) -> None:
    console = start("console", "--cluster", cluster.directory, "--port", "0")
    try:
        assert console.stdout is not None
        line = console.stdout.readline()
        assert line.startswith("console: http://127.0.0.1:")
        browser = Browser(line.split()[1], **credentials(cluster, "admin"))
        assert browser.session["features"]["timeline"] == "brokers"
        events = browser.get("/timeline")
        assert events["resolution_ms"] == 0 and events["source"] == "brokers"
        browser.close()
        console.terminate()
        assert console.wait(60) == 0
    finally:
        console.kill()
        console.wait()
