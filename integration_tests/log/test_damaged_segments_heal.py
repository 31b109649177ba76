"""R-LOG8: what rots in finished segments comes back from other replicas, while brokers run, after
a stop in order, and when the broker that repairs is killed in the middle.
"""

import random
from pathlib import Path

from integration_tests.log.test_deleted_records_stay_deleted import values
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.settings_support import produce
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "damaged"
VALUES = [b"%06d" % number * 50 for number in range(1500)]
SETTINGS = (("log.scrub.interval.ms", "500"), ("log.scrub.bytes.per.second", "100000000"))
CONFIG = {"segment.bytes": "50000"}
KILLS = 3 if ALL_FAULTS else 1


def folder(cluster: LocalCluster, broker: int) -> Path:
    entry = cluster.state.broker(broker)
    return cluster.directory / entry.data_dir / f"{TOPIC}-0"


def segments(cluster: LocalCluster, broker: int) -> list[Path]:
    return sorted(folder(cluster, broker).glob("*.log"))


def contents(cluster: LocalCluster, broker: int) -> bytes | None:
    """The whole log; None while files come and go."""
    try:
        return b"".join(path.read_bytes() for path in segments(cluster, broker))
    except FileNotFoundError:
        return None


def rot(path: Path, dice: random.Random) -> None:
    with path.open("r+b") as file:
        for _ in range(3):
            position = dice.randrange(path.stat().st_size - 8)
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 + dice.randrange(255))]))


def filled(cluster: LocalCluster) -> bytes:
    """The bytes that all replicas have."""
    create_topic(cluster, TOPIC, config=CONFIG)
    for start in range(0, len(VALUES), 50):
        produce(cluster.bootstrap_servers, TOPIC, VALUES[start : start + 50])
    wait_for_isr(admin(cluster), TOPIC, 3)
    wait_until(
        lambda: len({contents(cluster, broker) for broker in (1, 2, 3)}) == 1, "replicas are equal"
    )
    good = contents(cluster, 1)
    assert good is not None
    assert len(segments(cluster, 1)) > 5
    return good


def test_damage_on_any_replica_is_repaired_while_it_runs_after_a_stop_and_over_kills(tmp_path):
    dice = random.Random(7)
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        good = filled(cluster)

        def healed() -> bool:
            return all(contents(cluster, broker) == good for broker in (1, 2, 3))

        client = admin(cluster)
        leader = leader_of(client, TOPIC)
        follower = next(broker for broker in (1, 2, 3) if broker != leader)

        # While they run: the leader and a follower, in different segments.
        rot(segments(cluster, leader)[0], dice)
        rot(segments(cluster, follower)[2], dice)
        wait_until(healed, "damage found while running is repaired")

        # A stop in order: bytes, an end, an index.
        cluster.stop_broker(follower)
        old, cut, last = (segments(cluster, follower)[n] for n in (1, 3, -1))
        rot(old, dice)
        for path in (cut, last):
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)
        cut.with_suffix(".index").write_bytes(b"\x01" * 24)
        cluster.start_broker(follower)
        wait_until(healed, "damage from before the start is repaired")

        # Killed at some moment of the repair.
        for _ in range(KILLS):
            victim = dice.choice((1, 2, 3))
            for path in segments(cluster, victim)[:-1]:
                rot(path, dice)
            wait_until(
                lambda victim=victim: (
                    any(folder(cluster, victim).glob("*.deleted"))
                    or contents(cluster, victim) == good
                ),
                "the repair has begun",
            )
            cluster.kill_broker(victim)
            cluster.start_broker(victim)
            wait_until(healed, "a repair that was killed is done again")
        wait_for_isr(client, TOPIC, 3)
        assert values(cluster.bootstrap_servers, TOPIC) == VALUES
