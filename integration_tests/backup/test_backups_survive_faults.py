"""Backups and restores that are killed, brokers that die meanwhile, damaged files, full disks and
places without rights: earlier backups stay whole, and nothing is half done."""

import json
import shutil
import signal
import sys
import time
from contextlib import suppress

import pytest
from confluent_kafka import Producer

from integration_tests.backup.load import committed_values
from integration_tests.forks.forked import run
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
)
from integration_tests.support.command_line import fail_here, start, succeed_here
from storage_engine.backup.folder_store import FolderStore
from storage_engine.tests.backup.s3_server import options_of, s3_server
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "numbers"

DYING = """
import os, signal, sys
from storage_engine.backup import batch_files, catalog, restored_logs, restored_nodes, store
from storage_engine.tools.cli import main

name, turn, *arguments = sys.argv[1:]
owner, attribute = {
    "file-written": (batch_files.BatchFiles, "end_file"),
    "manifest": (catalog, "write_manifest"),
    "log-restored": (restored_logs, "_fill"),
    "logs-noted": (restored_nodes.RestoredNodes, "note_logs"),
    "nodes": (restored_nodes.RestoredNodes, "_create_all"),
}[name]
work, left = getattr(owner, attribute), [int(turn)]

def dying(*args, **kwargs):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return work(*args, **kwargs)

setattr(owner, attribute, dying)
sys.exit(main(arguments))
"""


def killed(name: str, turn: int, *arguments: object) -> None:
    """Run a command that is killed at that moment."""
    done = run([sys.executable, "-c", DYING, name, str(turn), *map(str, arguments)], timeout=120)
    assert done.returncode == -signal.SIGKILL, done


def produce(servers: str, values) -> list[bytes]:
    # No batch may be larger than a segment.
    producer = Producer({**settings_for(servers), "acks": "all", "batch.size": 2_000})
    written = [b"%d" % value for value in values]
    errors = []
    for value in written:
        producer.produce(
            TOPIC,
            value,
            partition=int(value) % 3,
            on_delivery=lambda error, _: errors.append(error),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not any(errors)
    return written


def values_in(servers: str) -> list[bytes]:
    seen = committed_values(servers, TOPIC, 3)
    return sorted((value for values in seen.values() for value in values), key=int)


def listed(place, capsys, *more: str) -> list[dict]:
    capsys.readouterr()
    assert main(["backup", "--to", str(place), *more, "--list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "cluster"
    with running_cluster(folder, brokers=2) as cluster:
        create_topic(
            cluster, TOPIC, partitions=3, replication_factor=2, config={"segment.bytes": "4096"}
        )
        yield cluster


@pytest.fixture(scope="module")
def backed_up(original, tmp_path_factory):
    """A place with two backups, and what the second has."""
    place = tmp_path_factory.mktemp("place") / "backups"
    written = produce(original.bootstrap_servers, range(1_000))
    succeed_here("backup", "--to", place, "--dir", original.directory)
    written += produce(original.bootstrap_servers, range(1_000, 2_000))
    succeed_here("backup", "--to", place, "--dir", original.directory)
    return place, written


@pytest.fixture
def place(backed_up, tmp_path):
    """A copy of the place, which a test may harm."""
    return shutil.copytree(backed_up[0], tmp_path / "place")


@pytest.mark.parametrize(("name", "turn"), [("file-written", 2), ("manifest", 1)])
def test_a_killed_backup_leaves_the_earlier_ones_whole_and_is_repeated(
    original, place, name, turn, capsys
):
    produce(original.bootstrap_servers, range(2_000, 2_100))
    killed(name, turn, "backup", "--to", place, "--dir", original.directory)
    assert [row["backup"] for row in listed(place, capsys)] == [1, 2]
    succeed_here("verify", "--from", place, "--backup", 2)
    succeed_here("backup", "--to", place, "--dir", original.directory)
    assert [row["backup"] for row in listed(place, capsys)] == [1, 2, 3]
    succeed_here("verify", "--from", place, "--dir", original.directory)
    before = set(FolderStore(place).names("data"))
    succeed_here("backup", "--to", place, "--prune", 2)
    assert [row["backup"] for row in listed(place, capsys)] == [2, 3]
    if name == "manifest":
        assert before > set(FolderStore(place).names("data")), "what was left behind is gone"
    assert FolderStore(place).unfinished("") == []
    for number in (2, 3):
        succeed_here("verify", "--from", place, "--backup", number)


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        pytest.param("log-restored", 2, marks=in_full),
        pytest.param("nodes", 2, marks=in_full),
        ("logs-noted", 2),
    ],
)
def test_a_killed_restore_is_repeated(backed_up, tmp_path, name, turn):
    place, written = backed_up
    folder = tmp_path / "restored"
    killed(name, turn, "restore", "--from", place, "--dir", folder)
    LocalCluster(folder).down()
    succeed_here("restore", "--from", place, "--dir", folder)
    with LocalCluster.running(folder) as restored:
        succeed_here("verify", "--from", place, "--dir", folder)
        assert values_in(restored.bootstrap_servers) == written


def test_a_cluster_that_holds_data_is_not_restored_into(backed_up, original, tmp_path, capsys):
    place, _ = backed_up
    assert "runs: stop the cluster first" in fail_here(
        capsys, "restore", "--from", place, "--dir", original.directory
    )
    folder = tmp_path / "restored"
    succeed_here("restore", "--from", place, "--dir", folder)
    capsys.readouterr()
    assert main(["restore", "--from", str(place), "--dir", str(folder)]) == 1
    assert "into an empty cluster only" in capsys.readouterr().err


def test_a_broker_may_die_during_a_backup(original, tmp_path):
    place = tmp_path / "place"
    leader = leader_of(admin(original), TOPIC)
    # Slow enough to be under way when the broker dies.
    with start(
        "backup", "--to", place, "--dir", original.directory, "--throttle", 20_000
    ) as backup:
        while not FolderStore(place).names("data"):
            assert backup.poll() is None, backup.communicate()
            time.sleep(0.01)
        original.kill_broker(leader)
        _, err = backup.communicate(timeout=120)
    original.start_broker(leader)
    wait_for_isr(admin(original), TOPIC, 2)
    assert backup.returncode == 0, err
    succeed_here("verify", "--from", place, "--dir", original.directory)


def test_a_topic_that_was_made_anew_is_another_one(original, place, capsys):
    client = admin(original)
    create_topic(original, "again", replication_factor=1)
    Producer(settings_for(original.bootstrap_servers)).flush(1)
    succeed_here("backup", "--to", place, "--dir", original.directory)
    client.delete_topics(["again"])["again"].result(60)
    deadline_s = time.monotonic() + 60
    while "again" in client.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline_s
    create_topic(original, "again", replication_factor=1)
    succeed_here("backup", "--to", place, "--dir", original.directory)
    capsys.readouterr()
    status = main(
        ["verify", "--from", str(place), "--backup", "3", "--dir", str(original.directory)]
    )
    assert status == 1
    assert "topic of that name is another one" in capsys.readouterr().out
    succeed_here("verify", "--from", place, "--dir", original.directory)


def flipped(path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_anywhere_is_noticed(place, tmp_path, capsys):
    kinds = {
        "manifest": sorted((place / "backups").glob("*.json"))[-1],
        "znodes": sorted((place / "zookeeper").iterdir())[-1],
        "batches": max((place / "data").rglob("*.log"), key=lambda path: path.stat().st_size),
    }
    for kind, path in kinds.items():
        sound = path.read_bytes()
        for at in range(0, len(sound), max(1, len(sound) // 25)):
            flipped(path, at)
            status = main(["verify", "--from", str(place)])
            told = capsys.readouterr()
            assert status == 1, f"{kind} at {at}"
            assert "damaged" in told.out + told.err or "format" in told.err, (kind, at, told)
            path.write_bytes(sound)
    path = kinds["batches"]
    flipped(path, path.stat().st_size // 2)
    folder = tmp_path / "restored"
    assert main(["restore", "--from", str(place), "--dir", str(folder)]) == 1
    capsys.readouterr()
    left = [each for each in folder.glob("broker-*/data/*") if each.is_dir()]
    assert not left, "nothing is half restored"


def test_a_place_that_takes_no_files_is_told_in_a_line(original, place, tmp_path, capsys):
    # A file where a folder should be: root may write everywhere.
    taken = tmp_path / "taken"
    taken.write_bytes(b"")
    line = last_line(capsys, "backup", "--to", taken, "--dir", original.directory)
    assert "can't" in line and str(taken) in line
    line = last_line(capsys, "backup", "--to", place, "--dir", tmp_path / "nowhere")
    assert "no cluster" in line
    line = last_line(capsys, "restore", "--from", tmp_path / "none", "--dir", tmp_path / "c")
    assert "there is no backup in" in line


def last_line(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: ")
    return line


def test_a_full_disk_ends_a_backup_in_a_line_and_leaves_the_earlier_ones(
    original, place, disk, capsys
):
    full = disk.path / "place"
    shutil.copytree(place, full)
    produce(original.bootstrap_servers, range(3_000, 33_000))
    with (disk.path / "filling").open("wb", buffering=0) as filling, suppress(OSError):
        while True:
            filling.write(bytes(1 << 16))
    line = last_line(capsys, "backup", "--to", full, "--dir", original.directory)
    assert "No space left" in line and "the backups before are as they were" in line
    (disk.path / "filling").unlink()
    succeed_here("verify", "--from", full)
    succeed_here("backup", "--to", full, "--dir", original.directory)


def test_files_are_for_their_owner_alone_and_secrets_can_be_left_out(original, tmp_path):
    place = tmp_path / "place"
    succeed_here("backup", "--to", place, "--dir", original.directory, "--without-secrets")
    for path in place.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert place.stat().st_mode & 0o077 == 0
    nodes = json.loads(next((place / "zookeeper").iterdir()).read_bytes())
    assert "/scram_decoy_key" not in nodes


def test_a_cluster_comes_back_from_an_object_store(original, tmp_path, capsys):
    written = values_in(original.bootstrap_servers)
    with s3_server("backups") as (url, _):
        options = [
            part
            for key, value in options_of(url).items()
            for part in ("--store-option", f"{key}={value}")
        ]
        there = ("s3://backups/east", *options)
        for _ in range(2):
            succeed_here("backup", "--to", *there, "--dir", original.directory)
        assert len(listed(there[0], capsys, *options)) == 2
        succeed_here("backup", "--to", *there, "--prune", 1)
        succeed_here("verify", "--from", *there)
        folder = tmp_path / "restored"
        succeed_here("restore", "--from", *there, "--dir", folder)
        with LocalCluster.running(folder) as restored:
            succeed_here("verify", "--from", *there, "--dir", folder)
            assert values_in(restored.bootstrap_servers) == written


def test_a_backup_of_a_later_release_is_refused(place, capsys):
    path = sorted((place / "backups").glob("*.json"))[-1]
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    line = last_line(capsys, "verify", "--from", place)
    assert "format 2" in line and "later one" in line


def test_commands_that_name_nothing_are_wrong_usage(tmp_path, capsys):
    for arguments in (
        ["backup", "--to", tmp_path],
        ["backup", "--to", tmp_path, "--bootstrap-server", "127.0.0.1:1"],
        ["restore", "--from", tmp_path],
    ):
        assert main([str(each) for each in arguments]) == 2
        line = capsys.readouterr().err
        assert "give --dir" in line or "needs --broker-config" in line
