"""The Python that Spark starts beside its JVM: for the lookup of formats, for planning, for tasks.

By default Spark starts `python3` of the PATH. That is not the Python of a job which was started as
`ENVIRONMENT/bin/python job.py`, without activating the environment: Spark then looks for the format
where it is not installed, and says DATA_SOURCE_NOT_FOUND.

The choice of a user who has set a Python stays, and executors on other machines are left alone. So
no variable of Spark's is set; the environment is activated, on this machine, by putting its folder
first on the PATH.
"""

import logging
import os
import shutil
import sys
from pathlib import Path

logger = logging.getLogger(__name__)

CHOICES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""The variables that choose a Python, in the order in which Spark's JVM looks at them."""

DEFAULT = "python3"
"""The program that Spark starts where neither variable is set."""


def is_chosen() -> bool:
    """Whether the Python of the workers was chosen, or can't be chosen here: under spark-submit,
    and in a worker, Spark runs already with what it was given."""
    return (
        any(os.environ.get(name) for name in CHOICES)
        or "PYSPARK_GATEWAY_PORT" in os.environ
        or any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)
    )


def use_this_python() -> None:
    """Lets a session that is built afterwards start this process's Python. Where that is not
    possible, a line in the log says what to do."""
    if not sys.executable or is_chosen() or is_default():
        return
    if _gateway_runs():
        _advise(
            "Spark runs already, and its workers are",
            "where Spark does not find the format, call connector.register(spark), or import "
            "connector before the session is built",
        )
    elif _can_be_first():
        folder = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([folder, *_path()])
    else:
        _advise(
            "Spark's workers will be",
            f"where Spark does not find the format, set PYSPARK_PYTHON={sys.executable} before "
            "the session is built",
        )


def is_default() -> bool:
    """Whether `python3` of the PATH is this process's Python, with the same packages."""
    found = shutil.which(DEFAULT)
    if found is None or not _is_same(found, sys.executable):
        return False
    return not _in_environment() or _is_same(Path(found).parent, Path(sys.executable).parent)


def _can_be_first() -> bool:
    """Whether this Python is a `python3` of a folder of its own. Others, such as /usr/bin, hold
    other programs, whose place on the PATH may matter."""
    here = Path(sys.executable)
    is_own = _in_environment() or not any(_is_same(each, here.parent) for each in _path())
    return is_own and _is_same(here.with_name(DEFAULT), here)


def _in_environment() -> bool:
    return sys.prefix != sys.base_prefix


def _path() -> list[str]:
    return os.get_exec_path()


def _is_same(one: str | Path, other: str | Path) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _gateway_runs() -> bool:
    """Whether this process has started a JVM, whose environment is what it was then."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _advise(who: str, remedy: str) -> None:
    found = shutil.which(DEFAULT) or "there is none"
    logger.warning(
        "%s %s of the PATH (%s), not %s: %s", who, DEFAULT, found, sys.executable, remedy
    )
