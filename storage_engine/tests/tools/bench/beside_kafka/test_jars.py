"""The jars of the comparisons: pinned; nothing is downloaded here."""

import pytest

from benchmarks.beside_kafka.jars import (
    CONNECTOR,
    KAFKA,
    KAFKA_TOOLS,
    SPARK_AVRO,
    ivy_file,
    read_pinned,
)
from storage_engine.tests.tools.bench.printed import one_line
from storage_engine.tools.cli import main


@pytest.mark.parametrize("jars", [KAFKA, CONNECTOR, SPARK_AVRO], ids=lambda jars: jars.folder)
def test_what_is_asked_of_maven_is_pinned(jars):
    pinned = read_pinned(jars.pinned)
    assert all(len(checksum) == 64 for checksum in pinned.values())
    for _, name, version in jars.dependencies:
        assert f"{name}-{version}.jar" in pinned
        assert f'name="{name}" rev="{version}"' in ivy_file(jars)


def test_a_jar_that_is_another_one_is_refused(capsys, tmp_path):
    jars = tmp_path / CONNECTOR.folder
    jars.mkdir()
    for name in read_pinned(CONNECTOR.pinned):
        (jars / name).write_bytes(b"another one")
    assert main(["bench", "beside-kafka", "--folder", str(tmp_path)]) == 1
    error = one_line(capsys)
    assert "commons-pool2" in error
    assert "remove the folder" in error


def test_no_way_to_maven_is_one_line_and_leaves_no_half_of_a_download(
    capsys, monkeypatch, tmp_path
):
    nobody = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nobody)
    assert main(["bench", "beside-kafka", "--folder", str(tmp_path)]) == 1
    error = one_line(capsys)
    assert "Spark's Kafka connector 4.2.0 can't be downloaded" in error
    assert "Maven Central" in error
    assert not (tmp_path / CONNECTOR.folder).exists()


def test_the_tools_come_alone_and_run_with_the_jars_of_kafka():
    ((_, name, version),) = KAFKA_TOOLS.dependencies
    assert list(read_pinned(KAFKA_TOOLS.pinned)) == [f"{name}-{version}.jar"]
    assert f"kafka-clients-{version}.jar" in read_pinned(KAFKA.pinned)
    assert 'transitive="false"' in ivy_file(KAFKA_TOOLS)
    assert "transitive" not in ivy_file(KAFKA)
