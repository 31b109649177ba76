"""The comparison with Apache Kafka: what it makes of its rounds, and its errors. Nothing is
downloaded here."""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.beside_kafka.environment import ROOT, requirements
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, SPARK_VERSION, ivy_file, read_pinned
from benchmarks.beside_kafka.processor_time import CpuTimes, cpu_times
from benchmarks.beside_kafka.rows import (
    COLUMNS,
    JOBS,
    ROWS,
    Batch,
    Measured,
    Round,
    cells,
    result_of,
)
from storage_engine.tools.cli import main
from storage_engine.tools.table import format_table
from storage_engine.zookeeper.embedded import has_ended

BURN = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"


def measured(rows: int, times_ms: list[float], cpu_s: float) -> Measured:
    batches = [Batch(rows=rows, time_ms=each) for each in times_ms]
    cpu = CpuTimes(brokers=cpu_s / 2, jvm=cpu_s / 4, python=cpu_s / 4)
    return Measured(batches=batches, rows=rows * len(batches), cpu=cpu)


def rounds(
    ours: list[list[float]], theirs: list[list[float]], rows: int = 200_000, cpu_s: float = 2.0
) -> list[Round]:
    return [
        Round(headrace=measured(rows, mine, cpu_s), kafka=measured(rows, its, 2 * cpu_s))
        for mine, its in zip(ours, theirs, strict=True)
    ]


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)


def test_a_time_is_the_median_micro_batch_and_meets_its_goal_when_it_is_half():
    recorded = rounds([[100, 150, 900], [140, 140, 140]], [[300, 300, 310], [350, 350, 350]])
    result = result_of(row_of("micro-batch"), recorded)
    assert [result.headrace, result.kafka] == [145, 325]
    assert result.ratio_spread == (0.4, 0.5)
    assert [result.ratio, result.goal, result.met] == [0.45, "<= 0.5", True]
    assert result.cpu_ratio == 0.5
    assert [each["headrace"] for each in result.rounds] == [150, 140]


def test_a_rate_is_all_rows_over_all_time_and_misses_its_goal_below_it():
    recorded = rounds([[500, 1500]] * 3, [[1000, 3000], [2000, 2400], [2000, 2000]])
    result = result_of(row_of("copy"), recorded)
    assert [result.headrace, result.kafka] == [200_000, 100_000]
    assert list(result.kafka_spread) == [90_909, 100_000]
    assert [result.ratio, result.met] == [2, False]


def test_processor_time_is_told_for_a_million_rows():
    result = result_of(row_of("cpu"), rounds([[500, 500]], [[900, 900]]))
    assert [result.headrace, result.kafka, result.ratio, result.met] == [5, 10, 0.5, True]


def test_the_table_has_a_line_for_each_row_and_short_numbers():
    recorded = rounds([[500, 1500]], [[1000, 3000]])
    results = [result_of(row, recorded) for row in ROWS]
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
    copied = next(line for line in lines if line.startswith("stream copied"))
    assert "200k" in copied
    assert copied.split()[-2:] == ["no", "0.5"]


def test_every_row_has_its_job_and_every_job_a_row():
    assert {row.job for row in ROWS} == {job.name for job in JOBS}


@pytest.mark.parametrize("jars", [KAFKA, CONNECTOR], ids=lambda jars: jars.folder)
def test_what_is_asked_of_maven_is_pinned(jars):
    pinned = read_pinned(jars.pinned)
    assert all(len(checksum) == 64 for checksum in pinned.values())
    for _, name, version in jars.dependencies:
        assert f"{name}-{version}.jar" in pinned
        assert f'name="{name}" rev="{version}"' in ivy_file(jars)


def test_the_environment_has_our_dependencies_and_one_pyspark():
    wanted = requirements(ROOT / "setup.cfg")
    assert [each for each in wanted if "pyspark" in each] == [f"pyspark=={SPARK_VERSION}"]
    assert any(each.startswith("pyarrow") for each in wanted)


def test_no_java_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["bench", "beside-kafka", "--folder", str(tmp_path)]) == 1
    assert one_line(capsys).startswith("headrace: Java was not found")


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


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "5"], "--rows is 5"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
        (["--conf", "spark.ui.enabled"], "--conf 'spark.ui.enabled' is not of the form KEY=VALUE"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_before_anything_starts(capsys, arguments, problem):
    assert main(["bench", "beside-kafka", *arguments]) == 2
    assert problem in one_line(capsys)


def test_an_unknown_row_is_refused_with_the_names_of_all(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "beside-kafka", "--only", "batch-reed"])
    assert ended.value.code == 2
    assert "batch-read" in capsys.readouterr().err


def test_processor_time_of_children_that_ended_is_counted():
    before = cpu_times([], os.getpid())
    subprocess.run([sys.executable, "-I", "-S", "-c", BURN], check=True)
    took = cpu_times([], os.getpid()).since(before)
    assert took.python >= 0.25
    assert took.brokers == 0
    # The JVM of a ZooKeeper that other tests of this worker share.
    assert took.all == pytest.approx(took.python + took.jvm)


def test_what_was_started_is_killed_with_us(tmp_path):
    program = """
from pathlib import Path
from benchmarks.beside_kafka.tethered import tethered
with tethered(["/bin/sleep", "600"], log=Path("log"), folder=Path()) as process:
    print(process.pid, flush=True)
    process.wait()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        assert not has_ended(started)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not has_ended(started):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def one_line(capsys) -> str:
    *_, last = capsys.readouterr().err.splitlines()
    assert len(last) < 600
    return str(last)
