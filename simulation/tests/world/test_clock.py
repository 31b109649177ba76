"""The simulated loop of a process: what befalls it, and in which order it then goes on."""

from simulation.world.clock import ProcessLoop, SimulatedLoop


def test_what_arrives_as_a_process_goes_on_comes_after_what_it_has_missed():
    loop = SimulatedLoop()
    process = ProcessLoop(loop)
    seen = []
    loop.call_later(5, process.pause)
    loop.call_later(6, lambda: process.enter(lambda: seen.append("first")))
    loop.call_later(10, process.resume)
    # In the same millisecond, and scheduled long before what the process has missed.
    loop.call_later(10, lambda: process.enter(lambda: seen.append("second")))
    loop.call_later(10, lambda: process.enter(lambda: seen.append("third")))
    loop.call_later(11, lambda: process.enter(lambda: seen.append("fourth")))
    loop.run_for(20)
    assert seen == ["first", "second", "third", "fourth"]


def test_the_order_holds_over_another_pause():
    loop = SimulatedLoop()
    process = ProcessLoop(loop)
    seen = []
    process.pause()
    process.enter(lambda: seen.append("first"))
    process.resume()
    process.enter(lambda: seen.append("second"))
    process.pause()
    loop.run_for(1)
    process.enter(lambda: seen.append("third"))
    assert seen == []
    process.resume()
    loop.run_for(1)
    process.enter(lambda: seen.append("fourth"))
    assert seen == ["first", "second", "third", "fourth"]


def test_a_process_that_is_killed_before_it_goes_on_does_nothing_more():
    loop = SimulatedLoop()
    process = ProcessLoop(loop)
    seen = []
    process.pause()
    process.enter(lambda: seen.append("missed"))
    process.resume()
    process.kill()
    loop.run_for(1)
    process.enter(lambda: seen.append("later"))
    assert seen == []
