"""`headrace bench wire` measures a broker beside its limits and leaves nothing behind."""

import json
import subprocess
import sys

from storage_engine.tests.sampling import in_full

TIMEOUT_S = 300
SMALL = ["--rounds", "1", "--bytes", str(16 << 20), "--requests", "2000", "--json"]


@in_full
def test_the_benchmark_prints_each_measurement_beside_its_limit(tmp_path):
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", "wire", *SMALL]
    command += ["--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)
    assert [result["what"].split(",")[0] for result in results] == [
        "produce",
        "fetch",
        "fetch",
        "fetch",
        "produce",
        "produce",
    ]
    for result in results:
        assert result["measured"] > 0
        assert result["limit"] > 0
        assert result["ratio_lowest"] <= result["ratio"] <= result["ratio_highest"]
        sign, goal = result["goal"].split()
        reached = {">=": result["ratio"] >= float(goal), "<=": result["ratio"] <= float(goal)}
        assert result["met"] == reached[sign] or result["ratio"] == float(goal)
    assert [result["cpu_ratio"] is not None for result in results] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_an_error_of_one_line(tmp_path):
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", "wire"]
    command += ["--dir", str(tmp_path / "absent")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is not a folder; give another --dir" in done.stderr
