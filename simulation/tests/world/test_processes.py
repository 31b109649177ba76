"""Simulated processes: their numbers, and who hears of their end."""

from simulation.world.clock import ProcessLoop, SimulatedLoop
from simulation.world.processes import SimulatedMachine, SimulatedProcesses


def test_a_number_is_used_again_but_not_with_its_start():
    machine = SimulatedMachine("a")
    first, second = machine.begin(10), machine.begin(10)
    assert (first.identity.pid, second.identity.pid) == (1, 2)
    first.end()
    third = machine.begin(20)
    assert third.identity.pid == 1
    assert third.identity != first.identity
    assert SimulatedMachine("b").begin(10).identity != first.identity


def test_the_end_of_a_process_is_noticed_on_its_machine_after_the_delay():
    loop = SimulatedLoop()
    machine = SimulatedMachine("a")
    machine.noticed_ms = lambda: 5
    processes = SimulatedProcesses(machine.begin(0), ProcessLoop(loop))
    other = machine.begin(0)
    seen = []
    for name, is_closed in (("heard", False), ("closed", True)):
        watched = processes.open(other.identity.pid)
        assert watched is not None
        watched.when_ended(lambda name=name: seen.append((name, loop.now_ms)))
        if is_closed:
            watched.close()
    other.end()
    loop.run_for(4)
    assert seen == []
    loop.run_for(10)
    assert seen == [("heard", 5)]
    assert processes.open(other.identity.pid) is None
