"""The console's pages where that takes long: of a secured cluster, of a console that may change
nothing, and the pictures of docs/console.md (`pictures.py`). Source: R-PAGE3, R-PAGE4.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.console.chromium import PHONE, WIDE, Chromium, needs_browser, open_chromium
from integration_tests.console.pictures import LARGEST_BYTES, TALL, pictures_in
from integration_tests.console.scene import ConsoleInFront, Scene, console_in_front
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import (
    SHARED_SETTINGS,
    admin,
    create_topic,
    running_cluster,
    wait_for_isr,
)
from integration_tests.support.command_line import succeed_here
from integration_tests.support.transactional_clients import Confluent
from storage_engine.tests.sampling import in_full

pytestmark = [in_full, needs_browser]

STUCK_S, TOLD_S, SLACK_S = 3, 5, 2


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A cluster of its own: its names stand in the pictures."""
    folder = tmp_path_factory.mktemp("pictured") / "river"
    with (
        running_cluster(folder, settings=SHARED_SETTINGS) as cluster,
        Scene(cluster, "", commits=34).played() as made,
    ):
        yield made


@pytest.fixture(scope="module")
def console(scene: Scene) -> Iterator[ConsoleInFront]:
    with console_in_front(scene.cluster) as running:
        yield running


@pytest.fixture(scope="module")
def page(console: ConsoleInFront, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with open_chromium(tmp_path_factory.mktemp("window"), console.address) as opened:
        yield opened


@pytest.fixture
def written(scene: Scene) -> Iterator[None]:
    """Somebody writes to a topic while pictures are made: a chart of zeros shows nothing."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.2):
            scene.write_more()

    thread = threading.Thread(target=write)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_pictures_of_a_live_cluster_are_made(page, console, scene, written, tmp_path):
    folder = pictures_in(tmp_path)
    made: list[Path] = []

    def picture(name: str) -> None:
        made.append(folder / f"console-{name}.png")
        page.picture(made[-1])

    console.post(scene.progress())
    page.show(TALL)
    page.open(f"topics/{scene.orders}?from=earliest&limit=20", wait_for="records shown")
    picture("messages")
    page.open(f"topics/{scene.flights}?from=earliest&limit=20", wait_for="records shown")
    picture("typed")
    page.open(f"topics/{scene.hostile}?from=earliest", wait_for="records shown")
    picture("hostile")
    page.open(f"groups/{scene.group}", wait_for="no members")
    picture("group")
    page.open("topics", wait_for="in sync")
    picture("topics")
    console.post(scene.progress())
    page.open(f"queries/{scene.query}", wait_for="addBatch")
    picture("query")
    page.open(f"dead-letters/{scene.dead}")
    page.press("Count")
    page.wait_for_text("Replay 6 records")
    picture("dead-letters")
    scene.cluster.kill_broker(2)
    page.open("overview", wait_for="2 of 3")
    page.wait_for_text("fewer replicas in sync", css=".problems")
    picture("overview")
    page.show(TALL, dark=True)
    picture("overview-dark")
    page.show(PHONE)
    picture("overview-phone")
    page.show(TALL)
    scene.cluster.start_broker(2)
    wait_for_isr(admin(scene.cluster), scene.orders, 3)
    page.open("timeline?span=5", wait_for="broker 2")
    picture("timeline")
    page.show(TALL, dark=True)
    console.post(scene.progress())
    page.open(f"queries/{scene.query}", wait_for="addBatch")
    picture("query-dark")
    sizes = {path.name: path.stat().st_size for path in made}
    assert {name: size for name, size in sizes.items() if size > LARGEST_BYTES} == {}
    assert page.complaints() == []


def test_a_page_that_is_open_says_within_five_seconds_that_a_transaction_is_stuck(page, scene):
    with console_in_front(scene.cluster, "--stuck-after", str(STUCK_S)) as running:
        window = Chromium(page.driver, running.address)
        window.open("overview", wait_for="broker 1")
        stuck = Confluent(scene.servers, "slow-loader", timeout_ms=600_000)
        try:
            stuck.begin()
            stuck.write(scene.hostile, 0, b"not committed")
            window.wait_for_text(
                "The transaction of 'slow-loader' has been open",
                css=".problems",
                timeout_s=STUCK_S + TOLD_S + SLACK_S,
            )
        finally:
            stuck.abort()
            stuck.close()
        window.wait_for_no_text("slow-loader", css=".problems")


def test_a_console_that_may_change_nothing_offers_no_changes(page, scene):
    with console_in_front(scene.cluster, "--read-only") as running:
        window = Chromium(page.driver, running.address)
        window.open("topics", wait_for=scene.orders)
        assert "Read-only" in window.text("header")
        assert "Create a topic" not in window.text()
        for address in (f"topics/{scene.orders}", f"groups/{scene.group}"):
            window.open(address, wait_for="Partitions")
            offered = window.text(".screen-head .actions")
            assert offered == "", offered
        window.open(f"dead-letters/{scene.dead}")
        window.wait_for_text("headrace replay-dead-letters")


def test_a_secured_cluster_asks_who_one_is_and_shows_who_may_what(tmp_path):
    with running_cluster(tmp_path / "secured", brokers=1, is_secure=True) as cluster:
        create_topic(cluster, "ledger", replication_factor=1)
        known = settings_for(cluster.bootstrap_servers)
        file = cluster.admin_config(cluster.state)
        servers = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", file)
        app = ("--allow", "User:app")
        for rule in (
            (*app, "--operation", "Read", "--topic", "ledger"),
            (*app, "--producer", "--topic", "orders-", "--prefixed"),
            (*app, "--consumer", "--topic", "orders-", "--group", "billing", "--prefixed"),
            ("--deny", "User:app", "--operation", "Delete", "--topic", "ledger"),
        ):
            succeed_here("acls", "add", *rule, *servers)
        with (
            console_in_front(cluster) as running,
            open_chromium(tmp_path / "window", running.address) as window,
        ):
            window.driver.get(running.address)
            window.wait_for_text("Log in as a user of the cluster")
            assert window.violations() == []
            _log_in(window, "admin", "wrong")
            window.wait_for_text("password", css=".form-problem")
            _log_in(window, known["sasl.username"], known["sasl.password"])
            window.wait_for_text("Overview", css="h1")
            window.open("access/acls", wait_for="User:app")
            assert window.violations() == []
            window.open("access/users", wait_for="SCRAM")
            window.show(TALL)
            window.open("access/acls", wait_for="User:app")
            window.picture(pictures_in(tmp_path) / "console-access.png")
            window.show(WIDE)
            window.open("topics", wait_for="ledger")
            window.press("Log out")
            window.wait_for_text("Log in as a user of the cluster")
            assert "ledger" not in window.text()
            window.driver.get(f"{running.address}/#/topics/ledger")
            window.wait_for_text("Log in as a user of the cluster")
            assert window.complaints() == []


def _log_in(window: Chromium, user: str, password: str) -> None:
    window.write("User", user)
    window.write("Password", password)
    window.press("Log in")


def test_a_wide_window_and_a_phone_show_the_same_topics(page, scene):
    shown = []
    for size in (WIDE, PHONE):
        page.show(size)
        page.open("topics", wait_for=scene.orders)
        shown.append(page.run("return document.querySelectorAll('tbody tr').length"))
    assert shown[0] == shown[1]
