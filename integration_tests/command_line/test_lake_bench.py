"""`headrace bench lake`: topics into tables, beside what Arrow alone takes to encode them.

The full run has it beside Structured Streaming, too, where the jars have been fetched. It leaves
nothing behind.
"""

import json

import pytest

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka.jars import KAFKA
from benchmarks.lake.jars import DELTA, DELTA_CONNECTOR
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

HAS_JARS = all(
    (default_folder() / each.folder).is_dir() for each in (KAFKA, DELTA, DELTA_CONNECTOR)
)


def _measured(capsys, folder, *parts):
    only = [argument for part in parts for argument in ("--only", part)]
    command = ["bench", "lake", "--rows", "10000", "--rounds", "1", "--seconds", "5"]
    assert main([*command, "--dir", str(folder), *only, "--json"]) == 0
    assert not list(folder.iterdir()), "it cleans up after itself"
    return json.loads(capsys.readouterr().out)


def test_a_topic_becomes_a_table_beside_what_encoding_takes(tmp_path, capsys):
    rate, lake, brokers, waits = _measured(capsys, tmp_path, "opaque", "visible")
    assert rate["measured"] > 0
    assert lake["measured"] > lake["limit"] > 0
    assert brokers["measured"] > 0
    assert waits["goal"] == "<= 6.0"
    assert waits["measured"] > 0


@in_full
def test_memory_is_measured_with_many_topics_and_with_large_rows(tmp_path, capsys):
    for each in _measured(capsys, tmp_path, "memory", "large"):
        assert each["met"], each


@in_full
@pytest.mark.skipif(not HAS_JARS, reason="`headrace bench lake` has not fetched its jars")
def test_structured_streaming_writes_the_same_rows_into_a_table(tmp_path, capsys):
    found = _measured(capsys, tmp_path, "beside-spark")
    assert len(found) == 6
    for each in found:
        assert each["ratio"] == pytest.approx(each["measured"] / each["limit"], rel=0.02)
