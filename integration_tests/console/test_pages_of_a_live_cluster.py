"""The console's pages in a real browser, on a real cluster: each screen and each action, hostile
messages, accessibility, the keyboard, a phone; and the half of it while a broker is dead.
Source: R-PAGE1 to R-PAGE4.

The tests from `broker_gone` on begin with a broker that was killed.
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from integration_tests.console.chromium import (
    PHONE,
    WIDE,
    Chromium,
    needs_browser,
    open_chromium,
    until,
)
from integration_tests.console.scene import (
    DEEP,
    LARGE_NUMBER,
    MARKUP,
    ConsoleInFront,
    Scene,
    console_in_front,
)
from integration_tests.support.cluster_support import admin, wait_for_isr, wait_until
from storage_engine.client import Consumer
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

pytestmark = needs_browser

PREFIX = "console-"
KILLED = 2
ROWS = ".message-rows"
IS_ON_TOP = """
const button = document.querySelector(arguments[0]);
const place = button.getBoundingClientRect();
return document.elementFromPoint(place.x + place.width / 2, place.y + place.height / 2) === button;
"""
HURRY = """
const [times] = arguments, {setTimeout} = window, {timeout} = AbortSignal;
window.setTimeout = (then, ms, ...rest) => setTimeout(then, ms / times, ...rest);
AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / times);
"""
WIDER_THAN_ITS_PLACE = """
const places = [document.documentElement, ...document.querySelectorAll("main, nav, .table-scroll")];
return places.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.outerHTML);
"""


@pytest.fixture(scope="module")
def scene(cluster: LocalCluster) -> Iterator[Scene]:
    with Scene(cluster, PREFIX).played() as made:
        yield made


@pytest.fixture(scope="module")
def console(scene: Scene) -> Iterator[ConsoleInFront]:
    with console_in_front(scene.cluster) as running:
        running.post(scene.progress())
        yield running


@pytest.fixture(scope="module")
def window(console: ConsoleInFront, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with open_chromium(tmp_path_factory.mktemp("browser"), console.address) as opened:
        yield opened


@pytest.fixture
def page(window: Chromium) -> Iterator[Chromium]:
    """The browser, at 1,440 pixels and in light. What the browser complains about fails the
    test."""
    window.show(WIDE)
    window.complaints()
    yield window
    assert window.complaints() == []


@pytest.fixture(scope="module")
def broker_gone(scene: Scene) -> Iterator[float]:
    """When it was killed, by time.monotonic()."""
    scene.cluster.kill_broker(KILLED)
    killed = time.monotonic()
    yield killed
    scene.cluster.start_broker(KILLED)
    wait_for_isr(admin(scene.cluster), scene.orders, 3)


def screens(scene: Scene) -> dict[str, str]:
    """The address of each screen, and a text that shows that it has its values."""
    return {
        "overview": "broker 1",
        "brokers/1": "log.dirs",
        "topics": scene.orders,
        f"topics/{scene.orders}": "records shown",
        f"topics/{scene.orders}/partitions": "broker",
        f"topics/{scene.orders}/batches": "zstd",
        f"topics/{scene.orders}/waiting": "loader",
        f"topics/{scene.orders}/settings": "retention.ms",
        "groups": scene.group,
        f"groups/{scene.group}": "no members",
        "queries": "delays",
        f"queries/{scene.query}": "addBatch",
        "dead-letters": scene.dead,
        "timeline": "broker 3",
        "access": "headrace",
    }


def judged(scene: Scene) -> list[str]:
    """The screens that axe-core looks at, which takes it two seconds each: all in full."""
    few = ["overview", f"topics/{scene.hostile}?from=earliest", f"queries/{scene.query}"]
    return [*few, *screens(scene)] if ALL_FAULTS else few


def test_each_screen_shows_its_values(page, scene):
    for address, text in screens(scene).items():
        page.open(address, wait_for=text)


def test_axe_finds_nothing_against_the_screens(page, scene):
    found = {}
    for address in judged(scene):
        page.open(address, wait_for=screens(scene).get(address, "shown"))
        found[address] = page.violations()
    assert {address: lines for address, lines in found.items() if lines} == {}


def test_dark_screens_have_enough_contrast(page, scene):
    page.show(WIDE, dark=True)
    for address in judged(scene) if ALL_FAULTS else judged(scene)[-1:]:
        page.open(address, wait_for=screens(scene).get(address, "shown"))
        assert page.violations(only=("color-contrast",)) == [], address


def test_a_phone_shows_every_screen_without_a_sideways_scroll(page, scene):
    page.show(PHONE)
    for address, text in screens(scene).items():
        page.open(address, wait_for=text)
        assert page.run(WIDER_THAN_ITS_PLACE) == [], address


def test_what_is_not_there_is_said_once_and_offers_nothing(page):
    for kind, all_of_it in (("topics", "All topics"), ("groups", "All groups")):
        page.open(f"{kind}/of-nobody", wait_for="There is no ")
        assert not page.element("main .actions").is_displayed(), kind
        shown = page.text("main").splitlines()
        assert [line for line in shown if "there is no" in line.lower()] == [shown[-1]]
        assert shown[-1].endswith(all_of_it)
    page.open("queries/of-nobody", wait_for="No query with this id")
    assert page.text("main").endswith("All queries")


def test_what_is_scrolled_to_is_not_under_the_line_of_screens(page, scene):
    page.show(PHONE)
    page.open(f"topics/{scene.orders}?from=earliest", wait_for="records shown")
    page.run("scrollTo(0, document.body.scrollHeight)")
    page.run("document.querySelector('main .actions button').scrollIntoView()")
    until(lambda: page.run(IS_ON_TOP, "main .actions button"), "the button is seen", timeout_s=10)


def test_everything_comes_from_the_consoles_own_server(page, console):
    page.open("overview", wait_for="broker 1")
    assert page.loaded() != []
    assert [each for each in page.loaded() if not each.startswith(console.address)] == []


def test_messages_that_want_to_harm_are_shown_and_do_nothing(page, scene):
    page.open(f"topics/{scene.hostile}?from=earliest", wait_for="5 records shown")
    for offset, text in enumerate([MARKUP, "no UTF-8", "[[[[", "⟨202E⟩", "10 MiB"]):
        row = page.text(f"{ROWS} tbody tr:nth-child({offset + 1})")
        assert text in row, row
    assert MARKUP in page.text(f"{ROWS} tbody tr:first-child .headers")
    page.press("0", within=f"{ROWS} tbody tr:nth-child(1)")
    page.wait_for_text(MARKUP, css="dialog")
    assert page.find("dialog script, dialog img, main script, main img") is None
    page.open("groups", wait_for=f"invoice⟨202E⟩fdp.exe{MARKUP}")
    page.element("tbody a[href*=invoice]").click()
    page.wait_for_text(f"{scene.hostile}-0")
    assert "⟨202E⟩" in page.text("h1")
    page.open(f"dead-letters/{scene.dead}")
    page.press("Count")
    page.wait_for_text(f"no JSON {MARKUP}")
    assert page.run("return window.harmed ?? null") is None


def test_a_deep_and_a_large_message_can_be_opened(page, scene):
    page.open(f"topics/{scene.hostile}?from=earliest", wait_for="5 records shown")
    for offset, size in ((2, "20 KiB"), (4, "10 MiB")):
        page.press(str(offset), within=f"{ROWS} tbody tr:nth-child({offset + 1})")
        page.wait_for_text(size, css="dialog")
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.wait_for_no_text("Its batch")
    assert page.imported("lib/json_text.js", f"m.indented('{DEEP}').length") > len(DEEP)


def test_json_is_shown_as_it_was_written(page, scene):
    page.open(f"topics/{scene.orders}?from=earliest&partitions=0", wait_for="records shown")
    page.choose("Show as", "Fields of JSON")
    page.wait_for_text("price", css=f"{ROWS} thead")
    assert str(LARGE_NUMBER) in page.text(f"{ROWS} tbody")
    page.press("0", within=f"{ROWS} tbody")
    page.wait_for_text(f'"id": {LARGE_NUMBER}', css="dialog")


def test_typed_rows_are_a_table_of_their_columns(page, scene):
    page.open(f"topics/{scene.flights}?from=earliest", wait_for="records shown")
    heads = page.driver.find_elements(By.CSS_SELECTOR, f"{ROWS} thead th")
    assert [each.text for each in heads][3:] == ["id", "carrier", "delay"]
    assert str(LARGE_NUMBER) in page.text(f"{ROWS} tbody")
    page.open(f"topics/{scene.flights}?from=earliest&where=delay+%3E+9.5", wait_for="9.75")
    assert "9.25" not in page.text(f"{ROWS} tbody")


def test_a_query_shows_its_micro_batches_its_sink_and_who_writes(page, scene, console):
    console.post(scene.progress())
    page.open(f"queries/{scene.query}", wait_for="Tasks that write now")
    chart = page.element("svg[aria-label^='Micro-batches by phase']")
    chart.send_keys(Keys.END)
    page.wait_for_text(f"batch {scene.told - 1}")
    sink = page.text("main")
    assert scene.sink in sink
    assert f"{scene.delays}-2" in sink
    assert f"producer {scene.member}" in sink
    assert "committed" in sink


def test_a_consumer_group_shows_its_epoch_and_its_members(page, scene):
    group = f"{PREFIX}consumer-group"
    config = {
        "bootstrap.servers": scene.cluster.bootstrap_servers,
        "group.id": group,
        "group.protocol": "consumer",
    }
    with Consumer(config) as consumer:
        consumer.subscribe([scene.orders])
        wait_until(lambda: consumer.poll(100) or consumer.assignment, "it has its part")
        page.open(f"groups/{group}", wait_for="uniform")
        page.wait_for_text("stable")
        told = page.text("main")
        assert "Type\nconsumer\nEpoch\n1\n" in told
        assert f"{scene.orders} 0\u20132" in told
        assert page.violations() == []
        page.open("groups", wait_for=group)
        assert page.violations() == []


def test_readers_learn_for_whose_transaction_they_wait(page, scene):
    page.open(f"topics/{scene.orders}/waiting", wait_for=f"{scene.orders}-0")
    assert f"{scene.orders}-loader" in page.text("tbody")


def test_messages_are_searched_and_followed(page, scene):
    page.open(f"topics/{scene.orders}?key=customer-3&value=carla&from=earliest")
    page.wait_for_text("14 records shown")
    assert "anna" not in page.text(f"{ROWS} tbody")
    page.open(f"topics/{scene.delays}", wait_for="Follow new records")
    page.press("Follow new records")
    page.wait_for_text("Following new records")
    _produce(page, "seen as it comes")
    page.wait_for_text("seen as it comes", css=f"{ROWS} tbody")
    page.press("Stop")
    page.wait_for_text("Stopped.")


def _produce(page, text):
    page.press("Produce a record")
    page.write("Value", text, within="dialog")
    page.write("Headers", "who=a test", within="dialog")
    page.press("Produce", within="dialog")
    page.wait_for_text("The record is at offset")


def test_what_can_not_be_meant_is_refused_where_it_was_typed(page, scene):
    page.open(f"topics/{scene.flights}", wait_for="records shown")
    page.press("Produce a record")
    page.write("Row", "{}", within="dialog")
    page.write("Partition", "first", within="dialog")
    page.press("Produce", within="dialog")
    page.wait_for_text("The partition is a whole number", css="dialog .form-problem")
    page.write("Partition", "", within="dialog")
    # JSON makes six bytes of such a sign, and the browser has fewer of them to lay out.
    page.run(r"document.querySelector('dialog textarea').value = '\x01'.repeat(1_000_000)")
    page.press("Produce", within="dialog")
    page.wait_for_text("larger than the console accepts (4 MiB)", css="dialog .form-problem")
    page.open(f"dead-letters/{scene.dead}")
    page.write("At most", "few")
    page.press("Count")
    page.wait_for_text("At most is a whole number", css=".form-problem")


def test_the_keyboard_reaches_everything(page, scene):
    page.open("topics", wait_for=scene.orders)
    body = page.element("body")
    body.send_keys("/")
    assert page.run("return document.activeElement.type") == "search"
    page.driver.switch_to.active_element.send_keys(scene.flights)
    page.wait_for_no_text(scene.orders, css="tbody")
    page.element("thead button.sort").send_keys(Keys.ENTER)
    until(lambda: page.find("th[aria-sort=descending]"), "the order is turned")
    page.element("h1").send_keys("gr")
    page.wait_for_text(scene.group)
    assert page.run("return document.activeElement.tagName") == "H1"
    assert page.driver.title.startswith("Groups")
    page.element("h1").send_keys("?")
    page.wait_for_text("Go to the search field", css="dialog")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(lambda: page.find("dialog") is None, "the dialog is closed")


def test_the_scheme_is_chosen_in_the_page_and_kept(page):
    page.open("overview", wait_for="broker 1")
    before = _background(page)
    page.element("select[aria-label=Colours] option[value=dark]").click()
    assert _background(page) != before
    page.open("groups", wait_for="in all")
    assert _background(page) != before
    page.element("select[aria-label=Colours] option[value=system]").click()
    assert _background(page) == before


def test_a_console_that_hangs_is_told_of_and_what_was_shown_stays(page, scene, console):
    page.open("overview", wait_for="broker 1")
    page.run(HURRY, 5)
    page.open("groups", wait_for=scene.group)
    os.kill(console.pid, signal.SIGSTOP)
    try:
        page.wait_for_text("did not answer within 15 s")
        assert scene.group in page.text("tbody")
    finally:
        os.kill(console.pid, signal.SIGCONT)
    page.wait_for_no_text("did not answer within 15 s")
    page.driver.refresh()


def _background(page):
    return page.run("return getComputedStyle(document.body).backgroundColor")


def test_the_overview_says_in_words_that_a_broker_is_gone_and_what_to_do(page, broker_gone):
    page.open("overview")
    page.wait_for_text(f"roker {KILLED}", css=".problem")
    problem = page.text(".problems")
    assert "Critical" in problem or "Warning" in problem
    assert page.text(".problem-do")
    page.wait_for_text("2 of 3", css=".figures")


def test_the_timeline_shows_who_led_before_and_after(page, scene, broker_gone):
    page.open(f"timeline?topic={scene.orders}", wait_for="new leader")
    page.wait_for_text(f"roker {KILLED}", css="main")
    spans = "return document.querySelectorAll('svg.lanes rect').length"
    until(lambda: page.run(spans) > 3, "a lane changes its leader")


def test_a_topic_is_made_written_changed_and_deleted_without_the_broker(page, scene, broker_gone):
    name = f"{PREFIX}new"
    page.open("topics", wait_for=scene.orders)
    page.press("Create a topic")
    page.write("Name", name, within="dialog")
    page.write("Partitions", "2", within="dialog")
    page.write("Replicas", "2", within="dialog")
    page.write("Settings", "retention.ms=60000", within="dialog")
    page.press("Create", within="dialog")
    page.wait_for_text("has been created with 2 partitions")
    page.open(f"topics/{name}", wait_for="records shown")
    _produce(page, "first")
    page.wait_for_text("first", css=f"{ROWS} tbody")
    page.press("Change")
    page.write("Partitions", "3", within="dialog")
    page.write("Settings", "retention.ms=120000", within="dialog")
    page.write("Type", name, within="dialog")
    page.press("Change", within="dialog form")
    page.wait_for_text("has been changed")
    page.open(f"topics/{name}/settings", wait_for="120000")
    page.press("Delete")
    button = page.element("dialog button.danger")
    page.write("Type", name[:-1], within="dialog")
    assert not button.is_enabled()
    page.write("Type", name, within="dialog")
    assert button.is_enabled()
    button.click()
    page.wait_for_text("has been deleted")
    page.wait_for_text(scene.orders, css="tbody")
    page.wait_for_no_text(name, css="tbody")


def test_what_is_refused_stays_in_the_dialog_with_the_reason(page, scene, broker_gone):
    page.open("topics", wait_for=scene.orders)
    page.press("Create a topic")
    page.write("Name", scene.orders, within="dialog")
    page.press("Create", within="dialog")
    page.wait_for_text("exist", css="dialog .form-problem")
    page.write("Settings", "retention.ms", within="dialog")
    page.press("Create", within="dialog")
    page.wait_for_text("has no value", css="dialog .form-problem")
    assert page.violations() == []


def test_offsets_of_a_group_are_set_after_a_look(page, scene, broker_gone):
    page.open(f"groups/{scene.group}", wait_for="no members")
    page.press("Reset offsets")
    page.choose("Set to", "a number of records from the committed offset", within="dialog")
    page.write("Records", "-3", within="dialog")
    page.press("Preview", within="dialog")
    page.wait_for_text("9 records will be read again", css="dialog")
    page.write("Type", scene.group, within="dialog")
    page.press("Set these offsets", within="dialog")
    page.wait_for_text("have been set on 3 partitions")
    page.wait_for_text("30", css="tbody")


def test_dead_letters_are_counted_and_sent_back(page, scene, broker_gone):
    page.open(f"dead-letters/{scene.dead}")
    page.press("Count")
    page.press("Replay 6 records")
    page.write("Type", scene.dead, within="dialog")
    page.press("Replay", within="dialog form")
    page.wait_for_text("Done: 6 of 6 records sent back")
    page.open(f"topics/{scene.orders}?value=no+order+at+all&from=earliest")
    page.wait_for_text("6 records shown")
