"""How a whole run is put together: what its processes inherit, and which worker runs what, when.

A file goes to one worker as a whole, for the sake of the cluster that its tests share. All files
whose tests use Spark are one such piece: its JVM takes as long to start as ten queries, gets faster
with use, and two at a time are too slow for Spark's own timeouts. Long files come first, so that no
worker is left with one at the end, and tests that wait run beside tests that compute.
"""

import gc
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from integration_tests.support import spark_versions
from integration_tests.support.left_behind import check_nothing_is_left, ended_with_us
from storage_engine.broker import unexpected
from storage_engine.tests.sampling import ALL_FAULTS

ROOT = Path(__file__).parent

# Before any other conftest imports PySpark. Without what .ci/spark_home.py makes, tests of Spark
# take twice as long.
spark_versions.choose()

SPARK_TESTS = (
    "integration_tests/spark/test_spark_",
    "integration_tests/exactly_once/test_spark_",
    "integration_tests/keyed_sink/test_spark_",
    "integration_tests/other_sparks/test_spark_",
)
WITH_SPARK = (
    *SPARK_TESTS,
    "integration_tests/avro/test_spark_avro.py",
    "integration_tests/avro/test_spark_beside_avro_clients.py",
    "integration_tests/backup/test_spark_goes_on_after_a_restore.py",
    "integration_tests/clients/test_large_batches_are_read.py",
    "integration_tests/connector/test_queries_tell_a_console.py",
    "integration_tests/lake/test_spark_reads_tables.py",
    "integration_tests/security/test_spark.py",
    "examples/usage/",
    "examples/flights/tests/test_job",
    "examples/flights/tests/test_demo",
)
"""One piece, although some start a Spark of their own: two at a time would be too slow for the
timeouts of Spark."""

WITH_PROCESSES = ("integration_tests/", "examples/")

MEASURED_S = {
    "integration_tests/groups/test_our_consumer_protocol.py": 45,
    "integration_tests/console/test_pages_of_a_live_cluster.py": 41,
    "integration_tests/features/test_half_upgraded_clusters.py": 40,
    "examples/flights/tests/test_demo.py": 40,
    "integration_tests/upgrades/test_upgrades.py": 37,
    "integration_tests/groups/test_consumer_groups.py": 33,
    "integration_tests/groups/test_consumer_protocol.py": 32,
    "integration_tests/registry/test_writers_that_die.py": 30,
    "integration_tests/command_line/test_machines_restart_broker_by_broker.py": 30,
    "integration_tests/requests/test_quotas_slow_clients_down.py": 25,
    "integration_tests/console/test_schemas_in_the_console.py": 25,
    "integration_tests/controller/test_an_ensemble_for_production.py": 25,
    "integration_tests/spark/test_spark_batch.py": 24,
    "integration_tests/exactly_once/test_spark_exactly_once.py": 22,
    "integration_tests/security/test_one_command_secures_a_cluster.py": 22,
    "integration_tests/security/clients/test_clients_by_every_way.py": 22,
    "integration_tests/command_line/test_command_line_leaves_nothing_behind.py": 21,
    "integration_tests/console/test_console_sees_trouble.py": 20,
    "integration_tests/controller/test_zookeeper_trouble.py": 19,
    "integration_tests/lake/test_tables_and_logs_are_one_read.py": 20,
    "integration_tests/connector/test_tasks_share_ranges.py": 19,
    "integration_tests/connector/test_source_reads_what_is_there.py": 19,
    "integration_tests/keyed_sink/test_column_values.py": 16,
    "integration_tests/clients/test_java_clients.py": 16,
    "integration_tests/security/test_our_clients.py": 16,
    "integration_tests/transactions/test_transactions.py": 15,
    "integration_tests/command_line/test_mirror.py": 15,
    "integration_tests/console/test_schemas_of_a_secured_cluster.py": 15,
    "integration_tests/console/test_console_of_a_secured_cluster.py": 14,
    "integration_tests/keyed_sink/test_keyed_table.py": 14,
    "storage_engine/tests/zookeeper/test_kazoo_driver_slow.py": 15,
    "simulation/tests/test_run_seeds.py": 14,
}
"""The files that take longest, in a run of all tests on two processors: they begin first. A file
that takes half as long again is marked in the report."""

OTHERS_S = 14
"""What no other file takes."""

UNMEASURED_S = {"with": 12, "without": 2}
"""What the others take, about, by whether their tests start processes."""

IGNORED = "HEADRACE_TESTS_IGNORE"
"""The signals that a run ignores, for its workers."""

EXAMPLES = 15
"""Of hypothesis, always the same, where a test asks for no other number; in full a hundred new
ones."""


def pytest_configure(config: pytest.Config) -> None:
    """For every process that a test starts; and what hypothesis tries."""
    _ignore_for_ourselves_alone()
    unexpected.is_fatal = True
    # Hundreds of brokers and workers start: compiled once, not in each of them. Nor are the tests.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What fails for one must fail for all. New examples: HEADRACE_FAULTS=full, or the profile
    # "search". No deadlines: a busy machine fails no test.
    profiles = hypothesis.settings
    profiles.register_profile("search", deadline=None)
    profiles.register_profile(
        "repeatable", derandomize=True, database=None, deadline=None, max_examples=EXAMPLES
    )
    if config.getoption("--hypothesis-profile", None) is None:
        profiles.load_profile("search" if ALL_FAULTS else "repeatable")
    if not ALL_FAULTS:
        # Else examples are made of the numbers and texts in all modules of ours that a worker has
        # loaded by then: each worker has others, and to parse them takes it seconds.
        providers._get_local_constants = Constants


def _ignore_for_ourselves_alone() -> None:
    """Processes inherit that signals are ignored: SIGHUP under nohup, SIGINT behind `&`. Programs
    under test must not, and workers must, which end with the run otherwise."""
    signals = (signal.SIGHUP, signal.SIGINT)
    ignored = {each.name for each in signals if signal.getsignal(each) is signal.SIG_IGN}
    ignored |= set(os.environ.get(IGNORED, "").split())
    os.environ[IGNORED] = " ".join(ignored)
    for each in signals:
        if each.name in ignored:
            # What is caught is not ignored by a program that is started.
            signal.signal(each, lambda _number, _frame: None)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither when the tests have ended, nor when they are killed. Spark's JVM ends with its
    process."""
    folder = tmp_path_factory.getbasetemp()
    with ended_with_us(folder):
        yield
        check_nothing_is_left(folder)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_brought_to_the_medium() -> Iterator[None]:
    """By a process of the tests itself; brokers and commands that it starts do. More than half of
    the time of a simulated cluster would be syncs, which no test without processes can tell from
    none: the machine goes on. In full they are done."""
    with pytest.MonkeyPatch.context() as patch:
        if not ALL_FAULTS:
            # Which descriptors are synced is still checked.
            patch.setattr(os, "fsync", os.fstat)
            patch.setattr(os, "fdatasync", os.fstat)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of all Spark tests of a run: it takes seconds to start. A process has one
    SparkContext: a test that stops it stops it for all that follow."""
    from integration_tests.support.spark_support import new_session

    session = new_session()
    yield session
    session.stop()


@pytest.fixture
def unknown_topics_are_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """By our clients, which else wait three seconds for a topic that brokers may not know yet."""
    from storage_engine.client.cluster import Cluster

    monkeypatch.setitem(Cluster.__init__.__kwdefaults__, "unknown_topic_wait_ms", 300)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    """Names that are no text are logged by some tests: such a report could not go from a worker to
    the run, which would end at once. So would one during which garbage is collected: Python 3.11
    then raises SystemError where the source of a failure is parsed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        report = yield
    finally:
        if was_enabled:
            gc.enable()
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


SHOWN_FILES = 25


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
        expected = 1.5 * MEASURED_S.get(file, OTHERS_S)
        mark = f"  (above {expected:.0f} s)" if seconds > expected else ""
        terminalreporter.write_line(f"{seconds:7.1f} s  {file}{mark}")


def pytest_report_header() -> str | None:
    seed = os.environ.get("HEADRACE_SEED")
    return None if seed is None else f"HEADRACE_SEED={seed}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Ten thousand tests and their modules are no garbage: nobody looks through them, neither while
    they are made nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Divides the tests into tiers, before `-m` chooses one, and puts them in order."""
    for item in items:
        if not item.nodeid.startswith(WITH_PROCESSES) and not item.get_closest_marker("slow"):
            item.add_marker("check")
    if not ALL_FAULTS:
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    elsewhere = {
        file
        for item in items
        if "spark" in getattr(item, "fixturenames", ())
        and not (file := item.nodeid.partition("::")[0]).startswith(WITH_SPARK)
    }
    if elsewhere:
        raise pytest.UsageError(f"{min(elsewhere)} uses Spark: name it in WITH_SPARK of {__file__}")
    places = _places({item.nodeid.partition("::")[0] for item in items})
    items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])


def _places(files: Collection[str]) -> dict[str, tuple[float, str]]:
    """What to sort files by: Spark, then tests with processes and tests without, side by side all
    the way, since the former wait for most of their time and the latter compute. Of both kinds the
    longest come first."""
    found: dict[str, tuple[float, str]] = {}
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        if file.startswith(WITH_SPARK):
            found[file] = (-1 - MEASURED_S.get(file, 0), "")
        else:
            kinds["with" if file.startswith(WITH_PROCESSES) else "without"].append(file)
    for each, of_kind in kinds.items():
        expected = {file: MEASURED_S.get(file, UNMEASURED_S[each]) for file in of_kind}
        begins, whole = 0.0, sum(expected.values())
        for file in sorted(of_kind, key=expected.__getitem__, reverse=True):
            found[file] = (begins / whole, file)
            begins += expected[file]
    return found


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
