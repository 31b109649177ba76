"""The soak runs, however shortly, and ends with its verdict."""

import subprocess
import sys
from pathlib import Path

from storage_engine.tests.sampling import SEED, in_full

TIMEOUT_S = 1200


@in_full
def test_half_a_minute_of_faults_is_exactly_once():
    command = [sys.executable, "-m", "integration_tests.soak", "--minutes=0.5", f"--seed={SEED}"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("soak: exactly once, ")
