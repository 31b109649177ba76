"""What a person has to decide stops a table, in one line, and no other table."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from integration_tests.lake.lakes import (
    TABLE,
    LakeUnderFire,
    assert_equal,
    lakes,
    opaque_log,
    rows_in,
    table_at,
    wait_for_rows,
)
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.command_line import fail, succeed
from storage_engine.client import Admin, Producer


@pytest.fixture
def lake(cluster, tmp_path, topic) -> Iterator[LakeUnderFire]:
    with lakes(cluster, tmp_path, topic) as (made,):
        yield made


def write(cluster, topic: str, count: int, **settings: object) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def status(cluster, lake: LakeUnderFire, topic: str) -> dict[str, Any]:
    """Of one topic, as the command tells it."""
    told = succeed(
        *("lake", "status", "--bootstrap-server", cluster.bootstrap_servers),
        *("--root", lake.root, "--group", topic, "--json"),
    )
    found = [each for each in json.loads(told) if each["topic"] == topic]
    assert len(found) == 1, told
    document: dict[str, Any] = found[0]
    return document


def assert_stops(cluster, lake: LakeUnderFire, topic: str, words: str) -> None:
    """Told by the log, once, and by the status."""
    wait_until(lambda: words in lake.told(), f"'{words}' is told: {lake.told()[-2000:]}")
    assert lake.told().count(words) == 1, lake.told()
    found = status(cluster, lake, topic)
    assert found["state"] == "stopped"
    assert words in found["line"]


def assert_others_go_on(cluster, lake: LakeUnderFire, topic: str) -> None:
    other = f"{topic}-other"
    create_topic(cluster, other, config=TABLE)
    write(cluster, other, 10)
    wait_for_rows(lake.root / other, 10, lake)


def test_a_topic_that_was_made_anew_is_another_source(cluster, lake, topic):
    create_topic(cluster, topic, config=TABLE)
    write(cluster, topic, 10)
    place = lake.root / topic
    wait_for_rows(place, 10, lake)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        client.delete_topics([topic])
    create_topic(cluster, topic, config=TABLE)
    write(cluster, topic, 30)
    assert_stops(cluster, lake, topic, "was deleted and created anew")
    assert rows_in(place) == 10
    assert_others_go_on(cluster, lake, topic)


def test_rows_that_others_removed_stop_the_table(cluster, lake, topic):
    create_topic(cluster, topic, config=TABLE)
    write(cluster, topic, 10)
    place = lake.root / topic
    wait_for_rows(place, 10, lake)
    DeltaTable(str(place)).delete("_offset < 5")
    write(cluster, topic, 10)
    assert_stops(cluster, lake, topic, "took away or changed rows")
    assert rows_in(place) == 5
    assert_others_go_on(cluster, lake, topic)


def test_a_table_that_was_dropped_is_not_written_anew_by_itself(cluster, lake, topic):
    create_topic(cluster, topic, config=TABLE)
    write(cluster, topic, 10)
    place = lake.root / topic
    wait_for_rows(place, 10, lake)
    shutil.rmtree(place)
    write(cluster, topic, 10)
    wait_until(lambda: "was dropped" in lake.told(), "it is told")
    lake.kill()
    lake.start()
    wait_for_rows(place, 20, lake)
    assert_equal(table_at(place), opaque_log(cluster, topic))


def test_a_location_outside_of_the_root_is_refused(cluster, lake, topic, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    create_topic(cluster, topic, config={**TABLE, "headrace.table.location": str(elsewhere)})
    assert_stops(cluster, lake, topic, "is not below the root of the lake")
    assert not elsewhere.exists()
    assert_others_go_on(cluster, lake, topic)


def test_a_location_that_can_t_be_written_is_told(cluster, lake, topic):
    lake.root.mkdir(exist_ok=True)
    (lake.root / topic).write_text("a file")
    create_topic(cluster, topic, config=TABLE)
    write(cluster, topic, 10)
    wait_until(lambda: f"topic '{topic}', {lake.root / topic}: " in lake.told(), "it is told")
    assert_others_go_on(cluster, lake, topic)


def test_offsets_that_an_unclean_election_gave_again_stop_the_table(tmp_path, topic):
    """The log is as long as before, and nothing of its second half is what the table has."""
    settings = (
        ("auto.leader.rebalance.enable", "false"),
        ("group.min.session.timeout.ms", "3000"),
        ("group.initial.rebalance.delay.ms", "0"),
    )
    with running_cluster(tmp_path / "cluster", settings=settings) as cluster:
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        create_topic(cluster, topic, config={**TABLE, **unclean})
        client = admin(cluster)
        wait_for_isr(client, topic, 3)
        write(cluster, topic, 10)
        with lakes(cluster, tmp_path, topic) as (lake,):
            place = lake.root / topic
            wait_for_rows(place, 10, lake)
            first = leader_of(client, topic)
            second, third = (broker for broker in (1, 2, 3) if broker != first)
            for broker in (second, third):
                cluster.kill_broker(broker)
            wait_until(lambda: alone(client, topic, first), "one leads alone")
            write(cluster, topic, 10, acks="1", **{"enable.idempotence": "false"})
            wait_for_rows(place, 20, lake)
            cluster.kill_broker(first)
            cluster.start_broker(second)
            wait_until(lambda: alone(client, topic, second), "another leads alone")
            write(cluster, topic, 30, acks="1", **{"enable.idempotence": "false"})
            assert_stops(cluster, lake, topic, "gave their offsets to others")
            assert rows_in(place) == 20
            # For a coordinator of the group.
            for broker in (first, third):
                cluster.start_broker(broker)
            wait_for_isr(client, topic, 3)
            lake.kill()
            lake.start()
            wait_until(lambda: lake.told().count("gave their offsets to others") == 2, "again")
            assert rows_in(place) == 20


def alone(client, topic: str, leader: int) -> bool:
    found = partition_metadata(client, topic)
    return found is not None and (found.leader, found.isrs) == (leader, [leader])


def test_what_is_wrong_with_the_command_is_one_line(cluster, tmp_path):
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    assert fail("lake", "status", status=2) == "give one of --cluster and --bootstrap-server"
    line = fail("lake", "run", *servers, "--memory", "10")
    assert line == "memory is 10 MiB; it must be 384 MiB or more"
    file = tmp_path / "lake.conf"
    file.write_text("table.clicks.colour=red\n")
    assert "is no setting of a table" in fail("lake", "run", *servers, "--config", file)
    file.write_text("roof=/lake\n")
    assert "'roof' is not a setting of the lake" in fail("lake", "run", *servers, "--config", file)
    assert "is not HOST:PORT" in fail("lake", "run", *servers, "--metrics", "here", status=2)
