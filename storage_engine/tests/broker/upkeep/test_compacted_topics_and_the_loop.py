"""Numpy and Arrow take most of a second to load: not on the event loop, where all clients wait."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.log.upkeep import load_codec
from storage_engine.tests.broker.settings.settings_requests import SET, TOPIC, alter


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Per broker, how often they were loaded in the background."""
    found: list[ProcessLoop] = []
    submit = ProcessLoop.submit

    def watched(self: ProcessLoop, work, on_done, on_error) -> None:
        if work is load_codec:
            found.append(self)
        submit(self, work, on_done, on_error)

    monkeypatch.setattr(ProcessLoop, "submit", watched)
    return found


def test_they_are_loaded_in_the_background_with_the_first_compacted_topic(tmp_path, loads):
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    for name, config, expected in (
        ("plain", {}, 0),
        ("compacted", {"cleanup_policy": "compact"}, 1),
        ("another", {"cleanup_policy": "compact,delete"}, 1),
    ):
        assert cluster.create_topic(name, **config).error_code == 0
        cluster.loop.run_until(
            lambda name=name: cluster[1].replicas.get(TopicPartition(name, 0)) is not None
        )
        assert len(loads) == expected, name
    # A broker that starts with compacted topics does it before it leads them.
    cluster[1].kill()
    cluster[1].start()
    cluster.loop.run_until(
        lambda: cluster[1].replicas.get(TopicPartition("another", 0)) is not None
    )
    assert len(loads) == 2 and loads[1] is cluster[1].loop
    cluster.close()


def test_they_are_loaded_when_a_topic_becomes_compacted(tmp_path, loads):
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    assert cluster.create_topic("t").error_code == 0
    cluster.produced_when_there(TopicPartition("t", 0), b"x")
    assert not loads
    alter(cluster, 1, TOPIC, "t", ("cleanup.policy", SET, "compact"))
    cluster.loop.run_for(5000)
    assert len(loads) == 1
    cluster.close()
