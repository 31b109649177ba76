"""How a whole run is put together: what its processes inherit, and which worker runs what, when.

A file goes to one worker as a whole, for the sake of the cluster that its tests share. Whatever
needs a Spark is one such piece: it keeps a core busy, and shares one JVM that gets faster with use,
while the other worker's tests wait for brokers. Long files come first, so that no worker is left
with one at the end.
"""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from storage_engine.broker import unexpected
from storage_engine.tests.sampling import ALL_FAULTS

ROOT = Path(__file__).parent

SPARK_CONF = ROOT / "integration_tests" / "spark_conf"

FIRST = (
    "integration_tests/test_spark_",
    "examples/",
    "integration_tests/",
    "storage_engine/tests/simulation/",
    "storage_engine/tests/broker/",
    "storage_engine/tests/zookeeper/",
    "storage_engine/tests/log/",
)
"""In this order; then all others, as they are found."""

WITH_SPARK = ("integration_tests/test_spark_", "examples/")


def pytest_configure(config: pytest.Config) -> None:
    """For every process that a test starts; and what hypothesis tries."""
    if ALL_FAULTS:
        # Of samples and of what is random in long tests. The workers of this process inherit it.
        os.environ.setdefault("HEADRACE_SEED", str(random.SystemRandom().randrange(1 << 24)))
    unexpected.is_fatal = True
    os.environ.setdefault("SPARK_CONF_DIR", str(SPARK_CONF))
    # Hundreds of brokers and workers start: compiled once, not in each of them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # What fails for one must fail for all. New examples: HEADRACE_FAULTS=full, or the profile
    # "search". No deadlines: a busy machine fails no test.
    profiles = hypothesis.settings
    profiles.register_profile("search", deadline=None)
    profiles.register_profile("repeatable", derandomize=True, database=None, deadline=None)
    if config.getoption("--hypothesis-profile", None) is None:
        profiles.load_profile("search" if ALL_FAULTS else "repeatable")


SHOWN_FILES = 25
BUDGET_S = {"storage_engine": 15, "connector": 5, "integration_tests": 30, "examples": 60}
"""What a file of tests may take, by its first folder; more than that is shown, and never fails."""


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
        budget = BUDGET_S.get(file.partition("/")[0], 0)
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
            return "spark" if nodeid.startswith(WITH_SPARK) else super()._split_scope(nodeid)

    # In our order, not by their numbers of tests.
    config.option.loadscopereorder = False
    return ByFileAndSpark(config, log)
