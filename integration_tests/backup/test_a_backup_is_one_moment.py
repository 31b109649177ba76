"""A cluster is backed up again and again while transactions, writers and a group are at work; all
of its data are deleted, and each backup is restored. Judged by confluent-kafka."""

import json
import shutil
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.backup.load import (
    GROUP,
    INPUT,
    OUTPUT,
    PARTITIONS,
    SPREAD,
    Copier,
    Spreader,
    Writer,
    check_spread,
    committed_values,
)
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from integration_tests.support.command_line import succeed, succeed_here
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

BACKUPS = 12 if ALL_FAULTS else 3


def numbers_in(seen) -> list[int]:
    return sorted(int(value) for values in seen.values() for value in values)


def backed_up_under_load(folder, place) -> list[tuple[dict, set[int]]]:
    """What was acknowledged before each backup began: transactions, and plain records."""
    before = []
    settings = (("transaction.state.log.num.partitions", "3"),)
    with running_cluster(folder, brokers=2, settings=settings) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(cluster, SPREAD, partitions=PARTITIONS, replication_factor=2)
        create_topic(cluster, INPUT, partitions=2, replication_factor=2)
        create_topic(cluster, OUTPUT, partitions=2, replication_factor=2)
        with ExitStack() as stack:
            spreaders = [
                stack.enter_context(Spreader(servers, number, is_ours=number == 2))
                for number in range(3)
            ]
            writer = stack.enter_context(Writer(servers))
            copier = stack.enter_context(Copier(servers))
            wait_until(lambda: copier.copied > 20, "the copier copies")
            wait_until(lambda: all(each.committed for each in spreaders), "transactions commit")
            for _ in range(BACKUPS):
                acknowledged = {
                    value: partitions
                    for each in spreaders
                    for value, partitions in list(each.committed.items())
                }
                before.append((acknowledged, set(writer.acknowledged)))
                succeed("backup", "--to", place, "--dir", folder)
                time.sleep(0.2)
        cluster.down()
    shutil.rmtree(folder)
    return before


@pytest.fixture(scope="module")
def backups(tmp_path_factory):
    place = tmp_path_factory.mktemp("backups") / "place"
    folder = tmp_path_factory.mktemp("clusters") / "original"
    return place, backed_up_under_load(folder, place)


def committed_offsets(servers: str) -> dict[int, int]:
    consumer = Consumer({**settings_for(servers), "group.id": GROUP})
    found = consumer.committed([TopicPartition(INPUT, number) for number in range(2)], 60)
    consumer.close()
    return {each.partition: max(0, each.offset) for each in found}


def check_copies(servers: str) -> None:
    """Each record below the group's offsets is copied once, and no other."""
    inputs, outputs = (committed_values(servers, topic, 2) for topic in (INPUT, OUTPUT))
    offsets = committed_offsets(servers)
    for number in range(2):
        assert offsets[number] <= len(inputs[number]), "an offset lies behind the records"
        assert outputs[number] == inputs[number][: offsets[number]]


@pytest.mark.parametrize("number", range(1, BACKUPS + 1) if ALL_FAULTS else [BACKUPS])
def test_each_backup_is_restored_as_one_moment(backups, number, tmp_path, capsys):
    place, before = backups
    transactions, plain = before[number - 1]
    folder = tmp_path / "restored"
    these = ("--backup", str(number))
    succeed_here("restore", "--from", place, *these, "--dir", folder)
    restored = LocalCluster(folder)
    with restored.running(folder):
        servers = restored.bootstrap_servers
        capsys.readouterr()
        status = main(["verify", "--from", str(place), *these, "--dir", str(folder), "--json"])
        told = capsys.readouterr()
        rows = json.loads(told.out or "[]")
        assert status == 0, told
        assert {SPREAD, INPUT, OUTPUT, "__consumer_offsets", "__transaction_state"} <= {
            row["topic"] for row in rows if row["batches"]
        }
        check_spread(committed_values(servers, SPREAD, PARTITIONS), transactions)
        assert plain <= set(numbers_in(committed_values(servers, INPUT, 2)))
        check_copies(servers)
        last = max(numbers_in(committed_values(servers, INPUT, 2)))
        # The group goes on where it was, under the ids of before.
        with Copier(servers) as copier, Writer(servers, last + 1) as writer:
            wait_until(lambda: len(writer.acknowledged) > 20, "records are written")
            wait_until(lambda: copier.copied > 20, "the copier goes on")
        check_copies(servers)
        with Spreader(servers, 9, is_ours=False) as spreader:
            wait_until(lambda: len(spreader.committed) > 3, "transactions go on")
        check_spread(
            committed_values(servers, SPREAD, PARTITIONS), {**transactions, **spreader.committed}
        )


def test_a_later_backup_copies_what_is_new(backups, capsys):
    place, _ = backups
    assert main(["backup", "--to", str(place), "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["backup"] for row in rows] == list(range(1, BACKUPS + 1))
    last = rows[-1]
    # It has what a few moments have written, and the tail of the moment.
    assert last["new_bytes"] < last["bytes"] / 2
    assert main(["verify", "--from", str(place)]) == 0
