"""The Java that Spark starts: that of JAVA_HOME; where this is not set, that of the PATH."""

import os
import shutil
from pathlib import Path

from storage_engine.tools.spark_check.findings import Finding
from storage_engine.zookeeper.server.java import MINIMUM_JAVA_VERSION, JavaError, version_of

CHECK = "Java"

_INSTALL = f"install a JRE of version {MINIMUM_JAVA_VERSION} or newer"


def check_java() -> Finding:
    """Whether Spark would find a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            return Finding.to_do(
                CHECK,
                f"JAVA_HOME={home}",
                f"there is no program {java}, and Spark does not look elsewhere: set JAVA_HOME to "
                f"a JRE of version {MINIMUM_JAVA_VERSION} or newer, or unset it where the PATH has "
                "one",
            )
    else:
        on_path = shutil.which("java")
        if on_path is None:
            return Finding.to_do(
                CHECK, "none", f"{_INSTALL}, so that the PATH has 'java', or set JAVA_HOME to one"
            )
        java = Path(on_path)
    return _check_version(java, by="JAVA_HOME" if home else "PATH")


def _check_version(java: Path, *, by: str) -> Finding:
    try:
        version = version_of(java)
    except JavaError as error:
        return Finding.to_do(CHECK, str(java), str(error))
    found = f"{version}, {java} by {by}"
    if version < MINIMUM_JAVA_VERSION:
        return Finding.to_do(
            CHECK, found, f"{_INSTALL}, and set JAVA_HOME to it; Spark 4 can't use {version}"
        )
    return Finding(check=CHECK, found=found)
