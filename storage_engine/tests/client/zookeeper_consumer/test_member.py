"""R-CLI3: members of a group in a simulated ZooKeeper in which everything goes wrong."""

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import SESSION_MS, World
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(90), deadline=None)
@given(st.integers(0, 2**32))
def test_nobody_reads_what_another_may_read_and_nothing_is_left_out(seed):
    world = World(seed)
    world.join()
    for _ in range(world.random.randint(5, 40)):
        world.loop.run_for(world.random.choice((1, 5, 30, 200)))
        world.happen()
    world.loop.run_for(3 * SESSION_MS)
    if not world.members:
        world.join()
    world.settle()
    assert world.takes
