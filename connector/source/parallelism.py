"""How many tasks Spark runs at the same time, as far as the planning process can find out.

Spark passes a planning process neither its settings nor its executors. But that process is a child
of the driver's JVM, whose command line has the settings that the session was started with, or names
the file that has them. A setting that is not there is unknown, and nothing is guessed: a machine's
number of cores implies nothing about executors elsewhere.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

MOST_ANCESTORS = 4
"""The most ancestors of a planning process up to the JVM: Spark's daemon for Python, a shell."""

_SPARK_MAIN = "org.apache.spark."
_FLAGS = {
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
}
_LOCAL = re.compile(r"local\[\s*(\*|[0-9]+)\s*(?:,\s*[0-9]+\s*)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*[0-9]+\s*\]")


@cache
def known_parallelism() -> int | None:
    """Tasks at the same time, 1 or more; None where that is not known. A JVM that starts a second
    session keeps the command line of the first."""
    for arguments in _command_lines(os.getppid()):
        if any(argument.startswith(_SPARK_MAIN) for argument in arguments):
            return parallelism_of(settings_of(arguments), cores=_cores())
    return None


def settings_of(arguments: Sequence[str]) -> dict[str, str]:
    """The settings of Spark on the command line of a JVM, and in the file that it names."""
    found: dict[str, str] = {}
    from_file: dict[str, str] = {}
    given = iter(arguments)
    for argument in given:
        name, _, value = argument.partition("=")
        if name.startswith("-Dspark."):
            found[name.removeprefix("-D")] = value
        elif name in ("--conf", "-c"):
            key, _, text = (value or next(given, "")).partition("=")
            found[key] = text
        elif name in _FLAGS:
            found[_FLAGS[name]] = value or next(given, "")
        elif name == "--properties-file":
            from_file = _properties(Path(value or next(given, "")))
    return from_file | found


def parallelism_of(settings: dict[str, str], *, cores: int) -> int | None:
    """Tasks at the same time, None: unknown. `cores`: this machine's, for Spark's local masters."""
    asked = _number(settings, "spark.default.parallelism")
    if asked is not None:
        return asked
    master = settings.get("spark.master", "")
    if master == "local":
        return 1
    if local := _LOCAL.fullmatch(master):
        slots = cores if local[1] == "*" else int(local[1])
    elif local := _LOCAL_CLUSTER.fullmatch(master):
        slots = int(local[1]) * int(local[2])
    else:
        slots = _executor_cores(settings)
    return slots // (_number(settings, "spark.task.cpus") or 1) or None


def _executor_cores(settings: dict[str, str]) -> int:
    """The cores of all executors at most; 0 where that is not known."""
    total = _number(settings, "spark.cores.max")
    if total is not None:
        return total
    is_dynamic = settings.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"
    instances = "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances"
    return (_number(settings, instances) or 0) * (_number(settings, "spark.executor.cores") or 0)


def _number(settings: dict[str, str], name: str) -> int | None:
    text = settings.get(name, "").strip()
    return int(text) if re.fullmatch("[1-9][0-9]{0,8}", text) else None


def _command_lines(process_id: int) -> Iterator[list[str]]:
    """The command lines of a process and its ancestors. Ends early where there is no /proc."""
    for _ in range(MOST_ANCESTORS):
        folder = Path("/proc", str(process_id))
        try:
            yield (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            # The name before it may have blanks and parentheses.
            status = (folder / "stat").read_text(errors="replace").rpartition(")")[2]
        except OSError:
            return
        process_id = int(status.split()[1])


def _properties(path: Path) -> dict[str, str]:
    """The settings of a file in the form of spark-defaults.conf, or of Java's properties."""
    found = {}
    with suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            match = re.match(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*)", line)
            if match is not None:
                found[match[1]] = match[2].strip()
    return found


def _cores() -> int:
    """The cores that this container may use, as the JVM counts them for `local[*]`."""
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota_us, period_us = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, -(-int(quota_us) // int(period_us))))
    return cores
