"""Checks which packages this Python has: Headrace, PySpark and PyArrow, and whether PySpark comes
with Spark."""

import importlib.util
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from storage_engine.tools.spark_check.findings import Finding

OLDEST_PYSPARK = (4, 0)
OLDEST_PYARROW = 18
"""The versions that setup.cfg requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """The findings, and the facts that the next checks need."""

    findings: list[Finding]
    spark_home: Path | None = None
    """The directory of Spark itself; None without a Spark that can be started."""
    pyspark: str | None = None


def check_packages(*, needs_spark: bool) -> Packages:
    """`needs_spark`: a session of this machine will be started, rather than one of a server."""
    from storage_engine import __version__

    findings = [
        Finding(check="headrace", found=__version__),
        Finding(check="Python", found=f"{python_version()}, {sys.executable}"),
        _check_pyarrow(),
    ]
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        findings.append(
            Finding.to_do(
                "pyspark", "not installed", f"run {sys.executable} -m pip install pyspark"
            )
        )
        return Packages(findings=findings)
    from pyspark.version import __version__ as version

    home = Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)
    has_spark = (home / "bin" / "spark-submit").is_file()
    findings.append(_check_pyspark(version, home, has_spark=has_spark or not needs_spark))
    return Packages(findings=findings, spark_home=home if has_spark else None, pyspark=str(version))


def python_version() -> str:
    """Return the version as in `3.11.7`."""
    return ".".join(map(str, sys.version_info[:3]))


def _check_pyspark(version: str, home: Path, *, has_spark: bool) -> Finding:
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST_PYSPARK <= numbers < (5, 0):
        return Finding.to_do(
            "pyspark", version, f"run {sys.executable} -m pip install 'pyspark>=4.0,<5'"
        )
    if has_spark:
        return Finding(check="pyspark", found=version)
    if os.environ.get("SPARK_HOME"):
        return Finding.to_do(
            "pyspark",
            f"{version}, SPARK_HOME={home}",
            f"there is no Spark in {home} (no bin/spark-submit): unset SPARK_HOME to use PySpark's",
        )
    return Finding.to_do(
        "pyspark",
        f"{version}, a client of Spark Connect only",
        "check the server that it connects to with --remote sc://HOST:PORT, or, to start Spark "
        f"on this machine, run {sys.executable} -m pip install 'pyspark=={version}'",
    )


def _check_pyarrow() -> Finding:
    try:
        version = metadata.version("pyarrow")
    except metadata.PackageNotFoundError:
        version = "not installed"
    major = version.partition(".")[0]
    if major.isdigit() and int(major) >= OLDEST_PYARROW:
        return Finding(check="pyarrow", found=version)
    return Finding.to_do(
        "pyarrow", version, f"run {sys.executable} -m pip install 'pyarrow>={OLDEST_PYARROW}'"
    )
