"""The quick start of README.md does what it says, in an environment that is not activated."""

import os
import re
import subprocess
import sys
from pathlib import Path

from integration_tests.support.cluster_support import running_cluster

README = Path(__file__).parents[3] / "README.md"
SERVERS = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
TIMEOUT_S = 600


def quick_start(language: str) -> str:
    """The first block of code of this language in the quick start."""
    _, _, text = README.read_text().partition("## Quick start\n")
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def test_the_quick_start_counts_what_was_produced(tmp_path):
    with running_cluster(tmp_path / "river", brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        commands = [
            line.replace("127.0.0.1:9092", servers)
            for line in quick_start("").splitlines()
            if "topics create" in line or "produce" in line
        ]
        assert len(commands) == 2
        bin_folder = Path(sys.executable).parent
        activated = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
        for command in commands:
            subprocess.run(command, shell=True, env=activated, check=True, timeout=TIMEOUT_S)
        job = tmp_path / "totals.py"
        job.write_text(quick_start("python").replace(SERVERS, servers))
        # Started by the path of its Python; the PATH has another python3.
        plain = {
            name: text
            for name, text in os.environ.items()
            if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH")
        }
        others = [each for each in os.get_exec_path() if Path(each) != bin_folder]
        done = subprocess.run(
            [sys.executable, str(job)],
            cwd=tmp_path, env=plain | {"PATH": os.pathsep.join(others)},
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert re.search(r"\|\s*anna\|\s*42\|", done.stdout), done.stdout
        assert re.search(r"\|\s*bert\|\s*7\|", done.stdout), done.stdout
