"""Settings of a session that cost speed."""

from pathlib import Path

import pytest

from storage_engine.tools.spark_check.findings import CheckVerdict
from storage_engine.tools.spark_check.settings import SETTINGS, judge_settings

DOCUMENT = Path(__file__).parents[4] / "docs" / "spark.md"


def _advised(given, **where):
    where = {"version": (4, 3), "cores": 2} | where
    return {
        each.check: each.remedy
        for each in judge_settings(given, **where)
        if each.verdict is CheckVerdict.ADVICE
    }


def test_spark_as_it_comes_is_advised_of_two_settings():
    assert set(_advised({})) == {
        "spark.python.unix.domain.socket.enabled",
        "spark.sql.shuffle.partitions",
    }


def test_a_version_is_not_advised_of_what_it_lacks():
    assert set(_advised({}, version=(4, 0))) == {"spark.sql.shuffle.partitions"}


def test_good_settings_need_no_advice():
    good = {
        "spark.python.unix.domain.socket.enabled": "TRUE",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
    }
    assert _advised(good) == {}


@pytest.mark.parametrize(
    ("name", "value", "beginning"),
    [
        ("spark.python.worker.reuse", "false", "set it to true: "),
        ("spark.python.use.daemon", "false", "set it to true: "),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "500", "leave it at 10000: "),
        ("spark.sql.shuffle.partitions", "8", "set it to 2, the number of cores, "),
        ("spark.sql.python.filterPushdown.enabled", "true", "set it to false: "),
    ],
)
def test_a_setting_that_costs_speed_is_told(name, value, beginning):
    assert _advised({name: value})[name].startswith(beginning)


def test_many_cores_and_servers_of_unknown_size_may_have_many_shuffle_partitions():
    name = "spark.sql.shuffle.partitions"
    assert name not in _advised({name: "200"}, cores=64)
    assert name not in _advised({name: "100"}, cores=None)
    assert "set it to the number of cores" in _advised({name: "200"}, cores=None)[name]


def test_every_setting_is_in_the_document():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [each.name for each in SETTINGS if f"`{each.name}`" not in text] == []
