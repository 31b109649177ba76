"""Changes between two looks."""

from headrace_console.cluster.changes import SINGLE, Changes
from headrace_console.tests.made_snapshots import snapshot


def test_a_failover_of_many_partitions_is_few_events() -> None:
    changes = Changes()
    changes.compare(None, snapshot(partitions=SINGLE))
    changes.compare(snapshot(partitions=SINGLE), snapshot(partitions=SINGLE, leader=2))
    assert len(changes.events()) == SINGLE
    assert changes.events()[0].words == "broker 2 leads t0-0, before it was broker 1"
    changes.compare(
        snapshot(partitions=SINGLE + 1), snapshot((2, 3), partitions=SINGLE + 1, leader=2)
    )
    *_, gone, many = changes.events()
    assert gone.words == "broker 1 left the cluster"
    assert many.words == f"partitions of 't0': {SINGLE + 1} have other leaders"
