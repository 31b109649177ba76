"""Logs that crash at any change of their files, again and again: R-LOG4, R-LOG8, R-LOG10.

`HEADRACE_FAULTS=full` lives many more seeds. A seed that fails names the command that lives it
again.
"""

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state.flush_state import FlushState
from storage_engine.tests.log.recovery.crash_program import CrashProgram, command_for
from storage_engine.tests.sampling import ALL_FAULTS

PARTS = 4
SEEDS = 5000 if ALL_FAULTS else 100


def live(seed: int) -> None:
    try:
        CrashProgram(seed).run()
    except Exception as error:
        error.add_note(f"live it again with: {command_for(seed)}")
        raise


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_a_crash_leaves_is_a_log_with_all_that_was_flushed(part):
    for seed in range(part, SEEDS, PARTS):
        live(seed)


def keep_recovery_point(state: FlushState, end_offset: int) -> None:
    state._generation += 1
    state._cut_unsynced = True


def trust_indexes(segment: LogSegment) -> None:
    segment.size = 0
    segment.next_offset = segment.base_offset
    segment.max_timestamp = -1
    segment._bytes_since_index = 0


BUGS = {
    "the folder is not synced": (SimulatedDisk, "sync_names", lambda disk, descriptor: None),
    "files are not synced": (SimulatedDisk, "sync", lambda disk, descriptor: None),
    "the recovery point stays when the log is cut": (
        FlushState, "log_is_cut_to", keep_recovery_point,
    ),
    "recovery trusts the indexes": (LogSegment, "reset", trust_indexes),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_put_in_on_purpose_is_found(monkeypatch, bug):
    monkeypatch.setattr(*BUGS[bug])
    with pytest.raises(Exception) as found:  # any: the bug decides what breaks
        for seed in range(SEEDS):
            live(seed)
    # Not by a patch that does not fit the code any more.
    assert not isinstance(found.value, (TypeError, AttributeError, NameError))
    assert (
        "live it again with: python -m storage_engine.tests.log.recovery.crash_program"
        in "".join(found.value.__notes__)
    )
