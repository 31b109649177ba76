"""The versions of Spark that tests run on: that of .venv, and earlier ones beside it, which
`.ci/spark_home.py` makes. `HEADRACE_SPARK=4.0 python -m pytest …` runs any tests on one of them.

This module imports no PySpark: it says which one a process will import.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix).resolve()

EARLIER = ("4.0", "4.1", "4.2")

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The flags of every JVM, and of the archive of classes that it maps."""

CHOSEN = os.environ.get("HEADRACE_SPARK")
"""The earlier version on which the tests of this process run. None for that of .venv."""


def is_installed(version: str) -> bool:
    return _packages(version).is_dir()


def environment(version: str | None) -> dict[str, str]:
    """What a process must inherit to start that version: None stands for that of .venv. Whatever
    Spark was configured on this machine has no say."""
    named = {
        name: text
        for name, text in os.environ.items()
        if name not in ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS")
    }
    named["SPARK_SUBMIT_OPTS"] = JVM
    home = VENV / "spark" if version is None else VENV / "versions" / version
    if (home / "python").is_dir():
        named["SPARK_HOME"] = str(home)
    archive = home / "classes.jsa"
    if archive.is_file():
        # Silent, also where the archive is of another JVM.
        named["SPARK_SUBMIT_OPTS"] += f" -XX:SharedArchiveFile={archive} -Xlog:disable"
    if version is not None:
        paths = [str(_packages(version)), str(ROOT), named.get("PYTHONPATH", "")]
        named["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return named


def python_path(*folders: str | Path) -> str:
    """PYTHONPATH with these folders, for a process that runs the Spark of the tests: an earlier
    version has its PySpark on the path."""
    earlier = [] if CHOSEN is None else [_packages(CHOSEN)]
    return os.pathsep.join(map(str, [*earlier, *folders]))


def choose() -> None:
    """For this process and all that it starts. To be called before anything imports PySpark."""
    made = environment(CHOSEN)
    for name in os.environ.keys() - made.keys():
        del os.environ[name]
    os.environ.update(made)
    if CHOSEN is not None:
        if not is_installed(CHOSEN):
            sys.exit(f"Spark {CHOSEN} is not there: make .venv/versions/{CHOSEN}/classes.jsa")
        sys.path.insert(0, str(_packages(CHOSEN)))


def _packages(version: str) -> Path:
    return VENV / "versions" / version / "packages"
