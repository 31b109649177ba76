"""The trace of a run."""

from simulation.checks.trace import KEPT_LINES, Trace
from simulation.world.clock import SimulatedLoop


def test_lines_have_their_time_and_the_newest_are_kept():
    loop = SimulatedLoop()
    trace = Trace(loop)
    for number in range(KEPT_LINES + 5):
        trace.note(f"event {number}")
        loop.run_for(1)
    lines = trace.lines()
    assert len(lines) == KEPT_LINES
    assert lines[0] == "    0.005 s  event 5"
    assert lines[-1].endswith(f"event {KEPT_LINES + 4}")
