"""How a whole run is put together: what its processes inherit, and which worker runs what, when.

A file goes to one worker as a whole, for the sake of the cluster that its tests share. All files
whose tests share one Spark are one such piece: its JVM takes as long to start as ten queries, and
gets faster with use. A file that starts a Spark of its own is a piece of its own. Long files come
first, so that no worker is left with one at the end.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from storage_engine.broker import unexpected
from storage_engine.tests.sampling import ALL_FAULTS

ROOT = Path(__file__).parent

SPARK_HOME = Path(sys.prefix).resolve() / "spark"
"""As .ci/spark_home.py makes it. Without it, tests of Spark take twice as long."""

SPARK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

OWN_SPARK = "integration_tests/exactly_once/test_spark_exactly_once.py"
SPARK_TESTS = (
    "integration_tests/spark/test_spark_",
    "integration_tests/exactly_once/test_spark_",
    "integration_tests/keyed_sink/test_spark_",
)
WITH_SPARK = (*SPARK_TESTS, "examples/usage/", "examples/flights/tests/test_job")
"""One piece, without OWN_SPARK."""

FIRST = (
    *WITH_SPARK,
    "integration_tests/",
    "examples/",
    "storage_engine/tests/simulation/",
    "storage_engine/tests/broker/",
    "storage_engine/tests/zookeeper/",
    "storage_engine/tests/log/",
)
"""In this order; then all others, as they are found."""


def pytest_configure(config: pytest.Config) -> None:
    """For every process that a test starts; and what hypothesis tries."""
    unexpected.is_fatal = True
    _prepare_spark()
    # Hundreds of brokers and workers start: compiled once, not in each of them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # What fails for one must fail for all. New examples: HEADRACE_FAULTS=full, or the profile
    # "search". No deadlines: a busy machine fails no test.
    profiles = hypothesis.settings
    profiles.register_profile("search", deadline=None)
    profiles.register_profile("repeatable", derandomize=True, database=None, deadline=None)
    if config.getoption("--hypothesis-profile", None) is None:
        profiles.load_profile("search" if ALL_FAULTS else "repeatable")


def _prepare_spark() -> None:
    """A Spark that was configured on this machine has no say."""
    os.environ.pop("SPARK_CONF_DIR", None)
    os.environ.pop("SPARK_HOME", None)
    os.environ["SPARK_SUBMIT_OPTS"] = SPARK_JVM
    archive = SPARK_HOME / "classes.jsa"
    if archive.is_file():
        os.environ["SPARK_HOME"] = str(SPARK_HOME)
        # Silent, also where the archive is of another JVM.
        os.environ["SPARK_SUBMIT_OPTS"] += f" -XX:SharedArchiveFile={archive} -Xlog:disable"


SHOWN_FILES = 25
BUDGET_S = {
    **dict.fromkeys(SPARK_TESTS, 90),
    "integration_tests/": 60,
    "examples/": 90,
    "storage_engine/": 20,
    "connector/": 5,
}
"""What a file of tests may take, by how its path begins: the first that fits. More than that is
shown, and never fails."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The files that took longest, set-up of their clusters included."""
    took: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    if len(took) < 2:
        return
    terminalreporter.section("files that took longest")
    for file, seconds in took.most_common(SHOWN_FILES):
        fitting = (limit for start, limit in BUDGET_S.items() if file.startswith(start))
        budget = next(fitting, 0)
        mark = f"  (budget {budget} s)" if seconds > budget else ""
        terminalreporter.write_line(f"{seconds:7.1f} s  {file}{mark}")


def pytest_report_header() -> str | None:
    seed = os.environ.get("HEADRACE_SEED")
    return None if seed is None else f"HEADRACE_SEED={seed}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    ranks = (rank for rank, start in enumerate(FIRST) if nodeid.startswith(start))
    return next(ranks, len(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = nodeid.startswith(WITH_SPARK) and not nodeid.startswith(OWN_SPARK)
            return "spark" if shared else super()._split_scope(nodeid)

    # In our order, not by their numbers of tests.
    config.option.loadscopereorder = False
    return ByFileAndSpark(config, log)
