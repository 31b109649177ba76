"""Which topics get which tables, and what is refused."""

from pathlib import Path

import pytest

from headrace_lake.lake_settings import (
    COMMIT_INTERVAL,
    FORMAT,
    LOCATION,
    PARTITION_BY,
    LakeSettings,
    planned,
    tables_of_file,
)
from storage_engine.core.errors import ConfigError

FILE = Path("lake.conf")
DELTA = {FORMAT: "delta"}


def lake(root: str | None = "/lake", **given) -> LakeSettings:
    return LakeSettings(bootstrap_servers="b:1", root=root, **given)


def refusal(settings: LakeSettings, **of_topics: dict[str, str]) -> str:
    """Of the only topic."""
    plan = planned(settings, of_topics, of_topics)
    assert not plan.tables
    (line,) = plan.refused.values()
    return line


def test_a_topic_with_a_format_has_a_table_of_its_name_below_the_root():
    plan = planned(lake(), {"clicks": DELTA}, ["clicks", "other"])
    assert {name: table.location for name, table in plan.tables.items()} == {
        "clicks": "/lake/clicks"
    }
    table = plan.tables["clicks"]
    assert (table.commit_interval_ms, table.file_bytes, table.partition_by) == (
        30_000,
        128 << 20,
        (),
    )


def test_a_topic_says_where_below_the_root_and_how():
    given = {**DELTA, LOCATION: "web/clicks", PARTITION_BY: "country, day", COMMIT_INTERVAL: "500"}
    table = planned(lake("s3://bucket/lake/"), {"clicks": given}, ["clicks"]).tables["clicks"]
    assert table.location == "s3://bucket/lake/web/clicks"
    assert (table.partition_by, table.commit_interval_ms) == (("country", "day"), 500)


@pytest.mark.parametrize(
    "place", ["/elsewhere/clicks", "/lakes/clicks", "/lake", "s3://bucket/clicks"]
)
def test_whoever_makes_a_topic_can_name_no_place_outside_of_the_root(place):
    line = refusal(lake(), clicks={**DELTA, LOCATION: place})
    assert line == (
        f"topic 'clicks': {LOCATION}={place}: it is not below the root of the lake (/lake); give a "
        "location below it, or name the table of topic 'clicks' in the lake's own file"
    )


@pytest.mark.parametrize("place", ["../clicks", "a/../../clicks", "/lake/../clicks"])
def test_no_place_leads_out_of_the_root_by_its_parts(place):
    assert "'..' is not allowed" in refusal(lake(), clicks={**DELTA, LOCATION: place})


def test_the_place_within_the_root_may_be_written_whole():
    given = {**DELTA, LOCATION: "/lake/web/"}
    assert planned(lake(), {"clicks": given}, ["clicks"]).tables["clicks"].location == "/lake/web"


def test_without_a_root_topics_have_no_tables():
    assert "start it with --root" in refusal(lake(root=None), clicks=DELTA)


def test_a_table_of_the_file_may_be_anywhere_and_counts_above_the_topic():
    tables = tables_of_file(
        {"table.orders.eu.location": "/mnt/orders", "table.orders.eu.commit.interval.ms": "700"},
        FILE,
    )
    of_topic = {**DELTA, LOCATION: "ignored", COMMIT_INTERVAL: "900", PARTITION_BY: "day"}
    plan = planned(lake(root=None, tables=tables), {"orders.eu": of_topic}, ["orders.eu"])
    table = plan.tables["orders.eu"]
    assert (table.location, table.commit_interval_ms) == ("/mnt/orders", 700)
    assert table.partition_by == ("day",)


def test_what_the_file_says_of_a_table_does_not_free_the_place_that_its_topic_names():
    tables = tables_of_file({"table.clicks.partition.by": "day"}, FILE)
    of_topic = {"clicks": {**DELTA, LOCATION: "/elsewhere"}}
    plan = planned(lake(tables=tables), of_topic, ["clicks"])
    assert "not below the root" in plan.refused["clicks"]


def test_a_table_of_the_file_waits_for_its_topic():
    tables = tables_of_file({"table.later.location": "/mnt/later"}, FILE)
    assert not planned(lake(tables=tables), {}, ["clicks"]).tables
    assert list(planned(lake(tables=tables), {}, ["later"]).tables) == ["later"]


def test_two_topics_can_t_name_one_table():
    same = {**DELTA, LOCATION: "both"}
    plan = planned(lake(), {"a": same, "b": same, "c": DELTA}, ["a", "b", "c"])
    assert list(plan.tables) == ["c"]
    assert plan.refused["a"] == plan.refused["b"]
    assert plan.refused["a"].startswith("topics 'a', 'b' name one table, /lake/both: ")


@pytest.mark.parametrize("name", ["table.clicks", "table.clicks.colour", "table..location"])
def test_a_misspelt_table_of_the_file_is_named(name):
    with pytest.raises(ConfigError, match="is no setting of a table; write table"):
        tables_of_file({name: "x"}, FILE)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"memory_bytes": 100 << 20}, "memory is 100 MiB; it must be 384 MiB or more"),
        ({"group": ""}, "group is empty"),
        (
            {"tables": {"a": {COMMIT_INTERVAL: "soon"}}},
            "headrace.table.commit.interval.ms=soon: must be a whole number",
        ),
    ],
)
def test_wrong_settings_are_refused_at_once(given, line):
    with pytest.raises(ConfigError, match=line):
        lake(**given)
