"""Prometheus' own tool reads what we ship for it. Source: R-MET2."""

import shutil
import subprocess
from pathlib import Path

import pytest

MONITORING = Path(__file__).parents[2] / "conf" / "monitoring"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing; Debian's package prometheus has it")
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", str(MONITORING / "alert-rules.yml")),
        ("check", "config", str(MONITORING / "prometheus.yml")),
        ("test", "rules", str(HERE / "alert-tests.yml")),
    ],
    ids=["rules", "config", "alerts"],
)
def test_promtool_finds_nothing_wrong(promtool, arguments):
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
