"""The Java that runs ZooKeeper, and its version."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from storage_engine.core.errors import HeadraceError

MINIMUM_JAVA_VERSION = 17
"""The oldest version that PySpark 4 runs on; Spark needs it anyway."""

_REMEDY = f"install a JRE of version {MINIMUM_JAVA_VERSION} or newer, or set JAVA_HOME to one"
_VERSION_COMMAND_TIMEOUT_S = 20.0


class JavaError(HeadraceError):
    """There is no Java, or one that is too old."""


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH; JavaError when there is none or it is too
    old."""
    java = _candidate()
    if java is None:
        raise JavaError(f"Java was not found (neither JAVA_HOME nor PATH has it): {_REMEDY}")
    version = version_of(java)
    if version < MINIMUM_JAVA_VERSION:
        raise JavaError(f"{java} is Java {version}, which is too old: {_REMEDY}")
    return java


def major_version(text: str) -> int | None:
    """Return the major version in `17.0.15`, `1.8.0_392` or `21`; None when there is none."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match.group(1)) if match else None


def _candidate() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if os.access(java, os.X_OK) and java.is_file():
            return java
    found = shutil.which("java")
    return Path(found) if found else None


def version_of(java: Path) -> int:
    """The major version of this `java`; JavaError when it does not report it."""
    # The file `release` of the installation is quick to read; asking the JVM takes 50 ms and more.
    release = java.resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE)
    except OSError:
        match = None
    version = major_version(match.group(1)) if match else None
    return version if version is not None else _version_from_command(java)


def _version_from_command(java: Path) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} does not run ({error}): {_REMEDY}") from None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    version = major_version(match.group(1)) if match else None
    if version is None:
        raise JavaError(f"{java} does not report its version: {_REMEDY}")
    return version
