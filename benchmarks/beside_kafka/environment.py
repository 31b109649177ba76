"""A Python environment with the PySpark that both sides run on.

Rule: made once in the cache, apart from the caller's environment; the repository itself comes to it
by PYTHONPATH, so that its present code is measured.
"""

import configparser
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.beside_kafka.jars import SPARK_VERSION
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

ROOT = Path(__file__).resolve().parents[2]

_TIMEOUT_S = 1_800


def make_environment(cache: Path) -> Path:
    """Return the path of the environment's Python, made unless the cache has it already."""
    name = f"pyspark-{SPARK_VERSION}"
    return environment_with(cache, name, requirements(ROOT / "setup.cfg"), "about 450 MB")


def environment_with(cache: Path, name: str, wanted: Sequence[str], size: str) -> Path:
    """Return the path of a Python with these packages, made unless the cache has it already; its
    folder's name begins with `name`."""
    folder = cache / f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    installed = folder / "installed.txt"
    if python.exists() and installed.exists() and installed.read_text() == "\n".join(wanted):
        return python
    report_line(f"installing {name} ({size}) into {folder}")
    installed.unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], "make an environment")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    _run([str(python), *install], f"install {name} from PyPI")
    installed.write_text("\n".join(wanted))
    return python


def requirements(setup: Path, spark: str = SPARK_VERSION) -> list[str]:
    """Return the packages that Headrace needs, with one version of PySpark."""
    config = configparser.ConfigParser()
    config.read(setup, encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    needed = [line for line in lines if line and not line.startswith("#")]
    return [f"pyspark=={spark}" if re.match(r"pyspark\b", line) else line for line in needed]


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"can't {what}: not done after {_TIMEOUT_S} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line or "Error" in line]
        reason = (errors or lines or [f"exit status {done.returncode}"])[0].strip()
        raise CommandError(
            f"can't {what} ({reason}); check the network, or run where --folder has been filled "
            "before"
        )
