"""A member's cache of znodes: each is read once, and again when its watch has fired (R-CLI3)."""

import pytest

from storage_engine.client.zookeeper_consumer.node_view import ABSENT, NodeView
from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import World
from storage_engine.zookeeper.consumer_znodes import OffsetZNode


class CountedView(NodeView):
    """A view of what is in `world`, with the numbers of its reads and of its news."""

    def __init__(self, world):
        self.session = world.session()
        self.reads = self.news = 0
        super().__init__(self.session, world.loop, self._count_news)
        for name in ("get", "children"):
            setattr(self.session, name, self._counted(getattr(self.session, name)))

    def _count_news(self):
        self.news += 1

    def _counted(self, read):
        def counted(*arguments):
            self.reads += 1
            read(*arguments)

        return counted


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def view(world):
    return CountedView(world)


def test_a_znode_is_read_once_until_it_changes(world, view):
    world.server.put("/a", b"1")
    assert view.data("/a") is None
    assert view.data("/a") is None
    assert world.settled(lambda: view.data("/a")).data == b"1"
    world.loop.run_for(1_000)
    assert (view.data("/a").data, view.reads, view.news) == (b"1", 1, 1)
    changes = view.changes
    world.server.put("/a", b"2")
    world.loop.run_for(100)
    assert view.news == 2 and view.changes > changes
    assert world.settled(lambda: view.data("/a")).data == b"2"


def test_one_that_is_not_there_is_watched_until_it_comes(world, view):
    assert world.settled(lambda: view.data("/a")) is ABSENT
    assert world.settled(lambda: view.children("/a")) is ABSENT
    world.server.put("/a", b"1")
    world.server.put("/a/x", b"")
    assert world.settled(lambda: view.data("/a")).data == b"1"
    assert world.settled(lambda: view.children("/a")).children == ("x",)


def test_what_another_wrote_amiss_is_nothing_and_told_once(world, view, caplog):
    def read():
        return view.read("/a", lambda data: OffsetZNode.decode("/a", data))

    world.server.put("/a", b"garbage")
    assert read() == (False, None)
    assert world.settled(read) == (True, None)
    assert world.settled(read) == (True, None)
    assert len(caplog.messages) == 1 and "/a" in caplog.text
    world.server.put("/a", b"7")
    assert world.settled(read) == (True, 7)
