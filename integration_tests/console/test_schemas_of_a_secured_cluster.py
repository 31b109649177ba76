"""Users of a secured cluster see in the console the schemas that the registry lets them see."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from headrace_console.cluster import registry_upstream
from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import Browser, running_console, within
from headrace_registry.tests.registry_support import Client, quoted
from integration_tests.console.test_console_of_a_secured_cluster import change_rules, credentials
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import DEADLINE_S, create_topic, running_cluster
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tools.client_settings import security_in
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.registry_address import registry_at

SOON_S = 45.0
"""A right counts for 5 s longer, on a machine that does other things, too."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("secured"), brokers=1, is_secure=True) as running:
        running.open_registry()
        yield running


def registry_of(cluster: LocalCluster) -> str:
    registry = cluster.state.registry
    assert registry is not None
    return registry.url


@pytest.fixture(scope="module")
def url(cluster) -> Iterator[str]:
    """What was fetched from the registry is not kept, so that a right that is gone is noticed."""
    settings = ConsoleSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        security=security_in(cluster.admin_config(cluster.state)),
        progress_token=Secret("token-of-the-queries"),
        registry=registry_at(registry_of(cluster), None),
        port=0,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_upstream, "KEPT_S", 0.0)
        with running_console(settings) as address:
            yield address


@pytest.fixture(scope="module")
def browsers(url, cluster) -> Iterator[tuple[Browser, Browser]]:
    """The super user's, and that of a user without rights."""
    admin, app = (Browser(url, **credentials(cluster, name)) for name in ("admin", "app"))
    yield admin, app
    for each in (admin, app):
        each.close()


@pytest.fixture
def topic(cluster) -> str:
    """With a subject, and a record by its schema."""
    name = f"t{uuid.uuid4().hex[:8]}"
    create_topic(cluster, name, replication_factor=1)
    log_in = credentials(cluster, "admin")
    registry = Client(registry_of(cluster), (log_in["user"], log_in["password"]))
    text = json.dumps({"type": "enum", "name": "E", "symbols": [name]})
    schema_id = registry.register(f"{name}-value", text)
    registry.close()
    producer = Producer({**settings_for(cluster.bootstrap_servers), "log_level": 0})
    producer.produce(name, b"\0" + schema_id.to_bytes(4, "big") + b"\0")
    assert producer.flush(DEADLINE_S) == 0
    return name


def value_of(browser: Browser, topic: str) -> Any:
    (row,) = browser.get(f"/topics/{topic}/messages", **{"from": "earliest"})["rows"]
    return row["value"]


def rule(cluster: LocalCluster, action: str, user: str, topic: str) -> None:
    of_whom = ("--allow", user, "--operation", "Read") if action == "add" else ("--principal", user)
    change_rules(cluster, action, *of_whom, "--topic", topic)


def test_two_users_see_different_subjects(browsers, cluster, topic) -> None:
    admin, app = browsers
    subject = f"{topic}-value"
    path = f"/subjects/{quoted(subject)}"
    assert admin.get("/subjects", filter=topic)["total"] == 1
    assert json.loads(admin.get(f"{path}/versions/1")["text"])["symbols"] == [topic]
    assert value_of(admin, topic)["text"] == f'"{topic}"'
    assert app.get("/subjects")["rows"] == []
    for hidden in (path, f"{path}/versions", f"{path}/versions/1"):
        assert app.ask(hidden).status_code == 404, hidden
    assert app.get(f"/topics/{topic}/subjects")["rows"] == []
    assert app.ask("/topics").status_code == 200, "what the registry refuses ends no session"
    user = f"User:{credentials(cluster, 'app')['user']}"
    rule(cluster, "add", user, topic)
    within(SOON_S, lambda: app.get("/subjects")["total"] == 1, "it may see the subject")
    (row,) = app.get(f"/topics/{topic}/subjects")["rows"]
    assert row["subject"] == subject
    assert value_of(app, topic)["text"] == f'"{topic}"'
    rule(cluster, "remove", user, topic)
    within(SOON_S, lambda: app.get("/subjects")["total"] == 0, "it may not any more")


def test_a_schema_that_is_hidden_reads_no_message_of_a_topic_that_is_not(
    browsers, cluster, topic
) -> None:
    """Ids are those of the whole registry, so a record may have one of another's subject."""
    admin, app = browsers
    user = f"User:{credentials(cluster, 'app')['user']}"
    schema_id = admin.get(f"/subjects/{topic}-value")["id"]
    other = f"{topic}-other"
    create_topic(cluster, other, replication_factor=1)
    producer = Producer({**settings_for(cluster.bootstrap_servers), "log_level": 0})
    producer.produce(other, b"\0" + schema_id.to_bytes(4, "big") + b"\0")
    assert producer.flush(DEADLINE_S) == 0
    rule(cluster, "add", user, other)
    within(SOON_S, lambda: app.get("/topics", filter=other)["total"] == 1, "it sees the topic")
    assert value_of(admin, other)["text"] == f'"{topic}"'
    found = value_of(app, other)
    assert f"knows no schema of id {schema_id}" in found["schema"]["why"]
    assert topic not in json.dumps(found)
    rule(cluster, "remove", user, other)


def test_the_console_of_headrace_up_knows_the_registry_and_its_users(cluster) -> None:
    address = cluster.open_console()
    log_in = credentials(cluster, "admin")
    browser = Browser(f"{address}/", **log_in)
    assert browser.session["features"]["schemas"]
    assert browser.ask("/subjects").status_code == 200
    browser.close()
    assert httpx.get(f"{address}/api/v1/subjects").status_code == 401
