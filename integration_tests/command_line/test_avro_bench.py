"""`headrace bench avro`: a registry with many schemas, and Avro in Spark beside Spark's own.

The full run has the command whole, where Apache Kafka's and Spark's jars have been fetched. It
leaves nothing behind.
"""

import json

import pytest

from benchmarks.arguments import default_folder
from benchmarks.avro.rows import GET, ROWS, START
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, SPARK_AVRO
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

JARS = (CONNECTOR, KAFKA, SPARK_AVRO)
HAS_JARS = all((default_folder() / each.folder).is_dir() for each in JARS)
SCHEMAS = 30


def _measured(capsys, folder, *arguments):
    command = ["bench", "avro", "--rounds", "1", "--schemas", str(SCHEMAS), "--dir", str(folder)]
    assert main([*command, *arguments, "--json"]) == 0
    assert not list(folder.iterdir()), "it cleans up after itself"
    return json.loads(capsys.readouterr().out)


def test_a_registry_answers_each_of_its_schemas_by_id(tmp_path, capsys):
    start, get = _measured(capsys, tmp_path, "--only", START, "--only", GET)
    assert [start["name"], get["name"]] == [START, GET]
    assert 0 < get["headrace"] < start["headrace"] * 1000
    for each in (start, get):
        assert each["cpu_us"] > 0
        assert each["kafka"] is None


@in_full
@pytest.mark.skipif(not HAS_JARS, reason="`headrace bench avro` has not fetched its jars")
def test_every_row_has_the_figures_and_processor_times_of_both_sides(tmp_path, capsys):
    results = _measured(capsys, tmp_path, "--rows", "5000")
    assert [each["name"] for each in results] == [row.name for row in ROWS]
    for each in results[:3]:
        assert each["ratio"] == pytest.approx(each["headrace"] / each["kafka"], rel=0.02)
        assert each["cpu_ratio"] > 0
        for side in each["rounds"][0].values():
            assert side["brokers_cpu_s"] + side["jvm_cpu_s"] > 0
