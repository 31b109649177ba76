"""`headrace bench produce` and `consume` put our clients beside others and leave nothing behind."""

import json
import subprocess
import sys

import pytest

from storage_engine.tests.sampling import in_full

pytestmark = [
    in_full,
]

TIMEOUT_S = 300


@pytest.mark.parametrize(("benchmark", "figures"), [("produce", 4), ("consume", 5)])
def test_each_figure_is_beside_that_of_another_client(tmp_path, benchmark, figures):
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", benchmark]
    command += ["--records", "5000", "--rounds", "1", "--json", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)
    assert len(results) == figures
    for result in results:
        assert result["measured"] > 0 and result["limit"] > 0 and result["ratio"] > 0
    assert not list(tmp_path.iterdir())
