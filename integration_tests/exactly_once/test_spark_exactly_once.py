"""The exactly-once sink with a real Spark: each fault at each stage, for queries with and without
state and for one that is not deterministic. Source: R-SPARK2; docs/sink-protocol.md.

All of them with HEADRACE_FAULTS=full. Else the hardest, and one each between typed topics and
topics of Avro: brokers and drivers that die under a query with state are in the demo's test and in
`test_spark_stream.py`, too.
"""

from collections.abc import Iterator

import pytest

from integration_tests.exactly_once.fault_runner import Bench, bench
from integration_tests.exactly_once.sink_faults import (
    Case,
    Fault,
    Stage,
    all_cases,
    avro_cases,
    typed_cases,
)
from integration_tests.support.spark_support import needs_limits
from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = [needs_limits]


HARDEST = Case(Fault.PARALLELISM, Stage.BEFORE_COMMIT, "random")
"""The replay has other rows in other tasks, which only the coordinator's record keeps apart."""

TYPED = Case(Fault.OUTPUT_LEADER, Stage.SOME_ROWS, "random", is_typed=True)
"""Typed batches are sent again to the next leader, which has them as a follower already."""

AVRO = Case(Fault.WORKER, Stage.SOME_ROWS, "random", is_avro=True)
"""The attempt after it encodes other rows, and the first one's are never read."""

CASES = (
    # Those that need a Spark of their own come last.
    sorted(
        [*typed_cases(), *avro_cases(), *all_cases()],
        key=lambda case: case.fault is Fault.SPECULATION,
    )
    if ALL_FAULTS
    else [TYPED, AVRO, HARDEST]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, request) -> Iterator[Bench]:
    # By default the successor of a killed driver runs in the session of the tests.
    session = None if ALL_FAULTS else request.getfixturevalue("spark")
    with bench(tmp_path_factory.mktemp("bench"), session=session) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_id_is_read_once_whatever_goes_wrong(shared, case):
    shared.run(case)
