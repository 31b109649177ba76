"""The same promises on a cluster made by `headrace up --secure`: Spark's source and sink, and the
brokers among themselves, over TLS with log-ins and access rules. In full a sample of all faults;
else one.
"""

from collections.abc import Iterator

import pytest

from integration_tests.exactly_once.fault_runner import Bench, bench
from integration_tests.exactly_once.sink_faults import Case, Fault, Stage
from integration_tests.support.spark_support import needs_limits
from storage_engine.tests.sampling import in_full

pytestmark = [needs_limits]

SAMPLE = (
    Case(Fault.OUTPUT_LEADER, Stage.ALL_ROWS, "copies"),
    Case(Fault.PARALLELISM, Stage.BEFORE_COMMIT, "random"),
    Case(Fault.COORDINATOR, Stage.RECORDED, "copies"),
    Case(Fault.WORKER, Stage.SOME_ROWS, "copies"),
    Case(Fault.TASK_FAILS, Stage.ALL_ROWS, "random"),
    Case(Fault.CONTROLLER, Stage.BEFORE_COMMIT, "windows"),
    Case(Fault.ZOMBIE, Stage.SOME_ROWS, "copies"),
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("secured"), is_secure=True) as made:
        yield made


@in_full
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_every_id_is_read_once_whatever_goes_wrong(secured, case):
    secured.run(case)
