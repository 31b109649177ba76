"""The exactly-once sink with a real Spark: each fault at each stage, for queries with and without
state and for one that is not deterministic. Source: R-SPARK2; docs/sink-protocol.md.

All of them with HEADRACE_FAULTS=full, else a few that HEADRACE_SEED picks.
"""

from collections.abc import Iterator

import pytest

from integration_tests.cluster_support import ALL_FAULTS, SEED
from integration_tests.fault_runner import Bench, bench
from integration_tests.sink_faults import KILLS_THE_DRIVER, Case, Fault, Stage, all_cases, sample

pytestmark = pytest.mark.slow

ALWAYS = Case(Fault.PARALLELISM, Stage.BEFORE_COMMIT, "random")
"""The replay has other rows in other tasks, which only the coordinator's record keeps apart."""

SAMPLE = 1
CASES = (
    # Those that need a Spark of their own come last.
    sorted(all_cases(), key=lambda case: case.fault is Fault.SPECULATION)
    if ALL_FAULTS
    # A JVM takes as long to start as all the rest: one of them kills its driver.
    else [*sample(SEED, SAMPLE, without=KILLS_THE_DRIVER), ALWAYS]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_id_is_read_once_whatever_goes_wrong(shared, case):
    shared.run(case)
