"""The Python that Spark starts beside its JVM, to look for formats, to plan and to run tasks.

It is started in the environment that Spark gives it, and asked what it has.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from storage_engine.tools.spark_check.findings import Finding
from storage_engine.tools.spark_check.packages import python_version

CHECK = "Python of the workers"
CHOICES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""The variables that choose it, in the order in which Spark's JVM looks at them."""
DEFAULT = "python3"
TIMEOUT_S = 60.0

PROBE = """
import json, sys
found = {"executable": sys.executable, "version": ".".join(map(str, sys.version_info[:3]))}
try:
    import pyarrow, numpy, kafka, crc32c, pyspark_headrace, storage_engine
    found["headrace"] = storage_engine.__version__
except Exception as error:
    found["error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(found))
"""
"""Runs on any Python 3."""


def check_workers(spark_home: Path) -> Finding:
    """Whether the Python of the workers has what the format needs."""
    from storage_engine import __version__

    by = next((name for name in CHOICES if os.environ.get(name)), None)
    command = os.environ[by] if by else DEFAULT
    path = shutil.which(command)
    if path is None:
        return _to_do(f"{_given(by, command)}: not found", "there is no such program", by)
    found = _ask(path, spark_home)
    if found is None:
        why = "it does not run Python's programs"
        if by == "PYSPARK_DRIVER_PYTHON":
            why += ", and Spark starts its workers by this variable, too"
        return _to_do(f"{path} by {_given(by, command)}", why, by)
    text = f"{found['version']}, {found['executable']} by {_given(by, command)}"
    if (why_not := _complaint(found, headrace=__version__)) is not None:
        return _to_do(text, why_not, by)
    return Finding(check=CHECK, found=text)


def _complaint(found: Mapping[str, str], *, headrace: str) -> str | None:
    theirs, ours = (each.rpartition(".")[0] for each in (found["version"], python_version()))
    if theirs != ours:
        return f"Spark wants one minor version of Python everywhere, and this one is {ours}"
    if "error" in found:
        return f"it does not have all that the format needs ({found['error']})"
    if found["headrace"] != headrace:
        return f"its headrace is {found['headrace']}, and this one {headrace}"
    return None


def _given(by: str | None, command: str) -> str:
    return f"{by}={command}" if by else f"'{DEFAULT}' of the PATH"


def _to_do(found: str, why: str, by: str | None) -> Finding:
    if by == "PYSPARK_DRIVER_PYTHON":
        remedy = f"unset {by}, and set PYSPARK_PYTHON={sys.executable}"
    elif by:
        remedy = f"set {by}={sys.executable}, or install headrace in the Python that it names"
    else:
        remedy = (
            "write 'import connector' in the job before the session is built, or activate the "
            f"environment, or set PYSPARK_PYTHON={sys.executable}"
        )
    return Finding.to_do(CHECK, found, f"{why}: {remedy}")


def _ask(path: str, spark_home: Path) -> dict[str, str] | None:
    """The output of PROBE; None where the program runs no Python. The path is the one that Spark
    sets."""
    libraries = spark_home / "python" / "lib"
    paths = [str(libraries / "pyspark.zip"), *map(str, sorted(libraries.glob("py4j-*.zip")))]
    paths += [each for each in [os.environ.get("PYTHONPATH")] if each]
    try:
        answer = subprocess.run(
            [path, "-c", PROBE],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        found: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return found
