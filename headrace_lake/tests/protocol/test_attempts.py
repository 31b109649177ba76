"""The order of the reasons; `headrace_lake/tests/model` shows that each is needed."""

import pytest

from headrace_lake.protocol.attempts import (
    AttemptDecision,
    TableBatch,
    TableState,
    decide,
    may_replace,
)
from headrace_lake.protocol.progress import LakeProgress

AT_5 = LakeProgress(end_offset=5, leader_epoch=1)
AT_9 = LakeProgress(end_offset=9, leader_epoch=1)
BATCH = TableBatch(commit_id="mine", base_version=7, starts={0: AT_5, 1: None}, ends={0: AT_9})


@pytest.mark.parametrize(
    ("table", "decision"),
    [
        (TableState(version=8, progress={0: AT_5}, swept_version=7), AttemptDecision.COMMIT),
        (TableState(version=8, progress={0: AT_9, 1: AT_5}, landed=frozenset({"mine"})),
         AttemptDecision.COMMITTED),
        (TableState(version=8, progress={0: AT_9}, landed=frozenset({"other"})),
         AttemptDecision.FENCED),
        # Another writer began the second partition.
        (TableState(version=8, progress={0: AT_5, 1: AT_5}), AttemptDecision.FENCED),
        # The same offset on another branch of the log.
        (TableState(version=8, progress={0: LakeProgress(end_offset=5, leader_epoch=2)}),
         AttemptDecision.FENCED),
        (TableState(version=9, progress={0: AT_5}, swept_version=8), AttemptDecision.WRITE_ANEW),
    ],
)  # fmt: skip
def test_what_becomes_of_a_batch(table, decision):
    assert decide(BATCH, table) is decision


def test_a_rewrite_is_committed_while_its_files_are_there_and_no_sweep_came():
    table = TableState(version=9, progress={}, swept_version=4)
    assert may_replace(["a", "b"], 7, {"a", "b", "c"}, table)
    assert not may_replace(["a", "b"], 7, {"a", "c"}, table)
    assert not may_replace(["a", "b"], 3, {"a", "b"}, table)
