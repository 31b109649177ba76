"""Schemas in the console's pages and in `headrace consume`: a local cluster with its registry and
its console, records of real serializers, a real browser. The last test kills the registry.
"""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_console.tests.console_support import Browser
from integration_tests.console.chromium import (
    PHONE,
    WIDE,
    Chromium,
    needs_browser,
    open_chromium,
)
from integration_tests.console.pictures import LARGEST_BYTES, TALL, pictures_in
from integration_tests.console.schema_scene import LARGE_NUMBER, UNKNOWN_ID, SchemaScene
from integration_tests.support.cluster_support import running_cluster, wait_until
from integration_tests.support.command_line import fail, succeed
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

ROWS = ".message-rows"
SCREENS = {
    "schemas": "rides-value",
    "schemas/rides-value": "com.example.Place",
    "schemas/rides-value?version=2&with=1": "lines with + were added",
    "schemas/cars-value": "message Car",
    "schemas/shop%2Feu": '"name": "Place"',
    "topics/rides?from=earliest": "9 records shown",
}
WIDER_THAN_ITS_PLACE = """
const places = [document.documentElement, ...document.querySelectorAll("main, nav, .table-scroll")];
return places.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.outerHTML);
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The console runs before there is a registry."""
    with running_cluster(tmp_path_factory.mktemp("schemas") / "river", brokers=1) as running:
        running.open_console()
        SchemaScene(running, running.open_registry()).play()
        yield running


def address_of(cluster: LocalCluster) -> str:
    console = cluster.state.console
    assert console is not None
    return console.url


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster) -> Iterator[Browser]:
    opened = Browser(f"{address_of(cluster)}/")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def window(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with open_chromium(tmp_path_factory.mktemp("browser"), address_of(cluster)) as opened:
        yield opened


@pytest.fixture
def page(window: Chromium) -> Iterator[Chromium]:
    """What the browser complains about fails the test."""
    window.show(WIDE)
    window.complaints()
    yield window
    assert window.complaints() == []


def values_of(browser: Browser, topic: str, **more: str) -> list[Any]:
    path = f"/topics/{topic}/messages"
    return [row["value"] for row in browser.get(path, **{"from": "earliest", **more})["rows"]]


def test_messages_of_all_languages_are_read_by_the_schemas_that_wrote_them(browser) -> None:
    *rides, cut, unknown, plain = values_of(browser, "rides")
    assert [each["schema"]["version"] for each in rides] == [1, 1, 1, 2, 2, 2]
    assert rides[0]["text"] == (
        f'{{"id":{LARGE_NUMBER},"begins":{{"city":"Rome"}},"fare":7.10,'
        '"at":"2026-11-30T12:00:00.000000Z"}'
    )
    assert json.loads(rides[3]["text"])["tip"] == "<b>coins</b>"
    assert "'begins.city'" in cut["schema"]["why"] and cut["kind"] == "binary"
    assert f"knows no schema of id {UNKNOWN_ID}" in unknown["schema"]["why"]
    assert plain["text"] == "plain" and "schema" not in plain
    (car,) = values_of(browser, "cars")
    assert json.loads(car["text"]) == {"plate": "RO-MA 1", "seats": [{"row": 1}, {"row": 2}]}
    (order,) = values_of(browser, "orders")
    assert json.loads(order["text"]) == {"id": LARGE_NUMBER, "items": ["a"]}
    assert order["schema"]["subject"] == "orders-value"


def test_a_search_and_a_streamed_one_find_what_the_json_says(browser) -> None:
    given = {"path": "$.begins.city", "equals": "Bonn"}
    assert len(values_of(browser, "rides", **given)) == 2
    found = [
        row["value"]["text"]
        for kind, event in browser.events(
            "/topics/rides/messages/stream", **{"from": "earliest", **given}
        )
        if kind == "rows"
        for row in event["rows"]
    ]
    assert len(found) == 2 and all('"city":"Bonn"' in each for each in found)


def test_the_bytes_of_a_message_that_was_read_are_there_too(browser) -> None:
    found = browser.get("/topics/orders/messages/0/0")["value"]
    data = browser.ask("/topics/orders/messages/0/0/raw", part="value").content
    assert data[0] == 0 and json.loads(data[5:])["id"] == LARGE_NUMBER
    assert bytes.fromhex(found["raw"]["text"]) == data and found["bytes"] == len(data)


def test_a_subject_may_have_a_slash_in_its_name(browser) -> None:
    assert browser.get("/subjects/~", subject="shop/eu")["numbers"] == [1]
    found = browser.get("/subjects/~/versions/1", subject="shop/eu")
    assert found["others"] == [{"subject": "com.example.Place", "version": 1}]


def test_a_console_without_a_registry_says_how_to_get_one() -> None:
    from headrace_console.console_settings import ConsoleSettings
    from headrace_console.tests.console_support import NOWHERE, code_of, running_console

    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as url:
        browser = Browser(url)
        answer = browser.ask("/subjects")
        assert (answer.status_code, code_of(answer)) == (501, "not_here")
        assert "--registry URL" in answer.text
        assert browser.session["features"]["schemas"] is False
        browser.close()


def test_consume_prints_what_serializers_wrote(cluster) -> None:
    registry = cluster.state.registry
    assert registry is not None
    where = ("--bootstrap-server", cluster.bootstrap_servers, "--exit-at-end")
    through = ("--schema-registry", registry.url)
    assert json.loads(succeed("consume", "cars", *where, *through))["plate"] == "RO-MA 1"
    told = succeed("consume", "rides", *where, *through, "--json").splitlines()
    first, *_, cut, _, plain = map(json.loads, told)
    assert '"fare":7.10' in told[0] and first["value"]["id"] == LARGE_NUMBER
    assert first["key"] == "rides-0" and "key_schema_id" not in first
    assert "'begins.city'" in cut["value_error"] and cut["value"].startswith("\0")
    assert plain["value"] == "plain" and "value_schema_id" not in plain
    group = ("--group", "readers", "--max", 6)
    lines = succeed("consume", "rides", *where[:2], *through, *group).splitlines()
    assert [json.loads(each)["begins"]["city"] for each in lines[:2]] == ["Rome", "Oslo"]
    refused = fail("consume", "rides", *where, *through)
    assert refused.startswith("the value of rides-0 at offset 6, with schema id ")
    away = fail("consume", "rides", *where, "--schema-registry", "nonsense", status=2)
    assert away.startswith("--schema-registry 'nonsense': it must be http://")


@needs_browser
def test_subjects_are_found_and_lead_to_their_topic_and_back(page) -> None:
    page.open("overview", wait_for="broker 1")
    page.press("Schemas")
    page.wait_for_text("com.example.Place")
    assert "BACKWARD" in page.text("tbody") and "Protobuf" in page.text("tbody")
    page.element("input[type=search]").send_keys("rides")
    page.wait_for_no_text("cars-value", css="tbody")
    page.press("rides", within="tbody")
    page.wait_for_text("rides-value version 2", css=".facts")
    page.press("rides-value", within=".facts")
    page.wait_for_text('"name": "tip"', css="pre")
    page.press("com.example.Place", within="main")
    page.wait_for_text("Referred to by")
    assert "rides-value version 2" in page.text("main")


@needs_browser
def test_two_versions_are_compared_and_the_address_says_which(page) -> None:
    page.open("schemas/rides-value", wait_for='"name": "tip"')
    page.choose("Compare with", "Version 1")
    page.wait_for_text("lines with + were added")
    added = page.run(
        "return [...document.querySelectorAll('.diff .added')].map((e) => e.innerText)"
    )
    assert any('"name": "tip"' in each for each in added), added
    assert page.find(".diff .removed") is None
    assert page.driver.current_url.endswith("rides-value?version=2&with=1")
    page.choose("Show", "Version 1")
    page.wait_for_text("have the same text")


@needs_browser
def test_what_differs_between_texts_is_found_line_by_line(page) -> None:
    page.open("schemas", wait_for="rides-value")

    def compared(before: str, after: str) -> str:
        lines = page.imported("lib/line_diff.js", f"m.lineDiff({before!r}, {after!r})")
        return " ".join(f"{each['kind'][0]}{each['text']}" for each in lines)

    assert compared("a\nb\nc", "a\nx\nc\nd") == "sa rb ax sc ad"
    assert compared("a\nb", "b\na") in ("ab sa rb", "ra sb aa")
    assert compared("a", "a") == "sa"
    many = "m.lineDiff('a\\n'.repeat(3000), 'b\\n'.repeat(3000))"
    assert page.imported("lib/line_diff.js", many) is None


@needs_browser
def test_messages_show_the_version_or_why_they_can_not_be_read(page) -> None:
    page.open("topics/rides?from=earliest", wait_for="9 records shown")
    rows = [page.text(f"{ROWS} tbody tr:nth-child({number})") for number in range(1, 10)]
    assert "v1, id" in rows[0] and str(LARGE_NUMBER) in rows[0]
    assert "<b>coins</b>" in rows[3] and page.find(f"{ROWS} tbody b") is None
    assert "'begins.city'" in rows[6] and "00 00 00" in rows[6]
    assert f"knows no schema of id {UNKNOWN_ID}" in rows[7]
    page.choose("Show as", "Fields of JSON")
    page.wait_for_text("fare", css=f"{ROWS} thead")
    page.press("3", within=f"{ROWS} tbody")
    page.wait_for_text("Read by the schema with id", css="dialog")
    page.driver.find_element("css selector", "dialog select").send_keys("Bytes as they are")
    page.wait_for_text("00 00 00 00", css="dialog")
    page.press("rides-value", within="dialog")
    page.wait_for_text("Compare with")


@needs_browser
def test_a_search_tells_that_some_values_could_not_be_read(page) -> None:
    page.open("topics/rides?from=earliest&path=%24.begins.city&equals=Bonn")
    page.wait_for_text("2 records shown", css=".progress")
    assert "can't be read by their schemas" in page.text(".progress")


@in_full
@needs_browser
def test_pictures_of_schemas_are_made(page, tmp_path) -> None:
    """Those of docs/console.md, as `test_pages_at_length` makes the others."""
    made = [
        ("schema", "schemas/rides-value?version=2&with=1", "lines with +"),
        ("read", "topics/rides?from=earliest", "9 records shown"),
    ]
    page.show(TALL)
    for name, address, text in made:
        path = pictures_in(tmp_path) / f"console-{name}.png"
        page.open(address, wait_for=text)
        page.picture(path)
        assert path.stat().st_size < LARGEST_BYTES


@needs_browser
def test_a_subject_that_is_not_there_is_said_once(page) -> None:
    page.open("schemas/of-nobody", wait_for="There is no subject")
    assert page.text("main").endswith("All subjects")


@needs_browser
def test_screens_of_schemas_can_be_used_by_everybody(page) -> None:
    for address, text in SCREENS.items():
        page.show(WIDE)
        page.open(address, wait_for=text)
        assert page.violations() == [], address
        page.show(WIDE, dark=True)
        assert page.violations(only=("color-contrast",)) == [], address
        page.show(PHONE)
        page.open("overview", wait_for="broker 1")
        page.open(address, wait_for=text)
        assert page.run(WIDER_THAN_ITS_PLACE) == [], address


def test_a_registry_that_is_killed_hides_no_message(browser, cluster) -> None:
    registry = cluster.state.registry
    assert registry is not None and registry.pid is not None
    os.kill(registry.pid, signal.SIGKILL)
    wait_until(lambda: cluster.state.registry.pid is None, "the registry is gone")
    answer = browser.ask("/subjects")
    assert answer.status_code == 504 and "gave no answer" in answer.text
    (car,) = values_of(browser, "cars")
    assert "schema" in car, "it is read, or the reason is told"
    fresh = Browser(f"{address_of(cluster)}/")
    assert len(values_of(fresh, "rides")) == 9
    fresh.close()
    cluster.open_registry()
    assert browser.get("/subjects")["total"] == 5
