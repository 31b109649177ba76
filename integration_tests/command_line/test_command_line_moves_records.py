"""`topics`, `produce`, `consume`, `dump-log` against real brokers."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import (
    COMMAND,
    ROOT,
    fail,
    fail_here,
    giving_up_after,
    headrace,
    start,
    succeed,
    succeed_here,
)
from storage_engine.tools.local.local_cluster import LocalCluster


@pytest.fixture
def directory(cluster: LocalCluster) -> Path:
    return cluster.directory


@pytest.fixture
def at(cluster: LocalCluster) -> tuple[str, str]:
    """The option that every command for topics and records wants."""
    return "--bootstrap-server", cluster.bootstrap_servers


def test_topics_are_created_listed_described_altered_and_deleted(at: tuple[str, str]) -> None:
    arguments = ("--partitions", "2", "--config", "retention.ms=100000000")
    created = succeed("topics", "create", "moved-first", *at, *arguments)
    assert created == "topic 'moved-first' created: 2 partitions, 3 replicas each\n"
    assert "moved-first" in succeed("topics", "list", *at).splitlines()
    assert "moved-first" in json.loads(succeed("topics", "list", "--json", *at))

    (described,) = json.loads(succeed("topics", "describe", "moved-first", "--json", *at))
    assert described["configs"]["retention.ms"] == {"value": "100000000", "source": "topic"}
    assert [len(row["isr"]) for row in described["partitions"]] == [3, 3]
    assert "retention.ms=100000000" in succeed("topics", "describe", "moved-first", *at)

    assert succeed("topics", "alter", "moved-first", "--partitions", "3", *at) == (
        "topic 'moved-first' has 3 partitions\n"
    )
    assert succeed("topics", "alter", "moved-first", *at, "--config", "segment.bytes=1000000") == (
        "settings of topic 'moved-first' changed\n"
    )

    def is_told(settings: str) -> bool:
        told = succeed("topics", "describe", "moved-first", *at)
        return f"settings of its own: {settings}\n" in told

    # Other brokers than the one that was asked hear of it a moment later.
    both = "retention.ms=100000000, segment.bytes=1000000"
    wait_until(lambda: is_told(both), "both settings are told")
    succeed("topics", "alter", "moved-first", *at, "--remove-config", "segment.bytes")
    wait_until(lambda: is_told("retention.ms=100000000"), "one setting is told")
    assert succeed("topics", "delete", "moved-first", *at) == "topic 'moved-first' deleted\n"
    assert "moved-first" not in succeed("topics", "list", *at).splitlines()


def test_impossible_topics_are_one_line(
    at: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def error(*arguments: str, status: int = 1) -> str:
        return fail_here(capsys, "topics", *arguments, *at, status=status)

    succeed_here("topics", "create", "moved-there", *at)
    assert "topic 'moved-there' exists" in error("create", "moved-there")
    succeed_here("topics", "create", "moved-there", "--if-not-exists", *at)
    assert "no!name" in error("create", "no!name")
    assert "3 brokers" in error("create", "wide", "--replication-factor", "4")
    assert "'retention.ms'" in error("create", "odd", "--config", "retention.m=1")
    assert "'gone' does not exist" in error("delete", "gone")
    assert "'gone' does not exist" in error("describe", "gone")
    assert "nothing to alter" in error("alter", "moved-there", status=2)
    assert "can only get more" in error("alter", "moved-there", "--partitions", "1")
    assert "'retention.ms'" in error("alter", "moved-there", "--config", "retention.m=1")
    assert "a whole number, 14 or more" in error(
        "alter", "moved-there", "--config", "segment.bytes=1"
    )
    assert "'gone' does not exist" in error("alter", "gone", "--config", "retention.ms=1")
    beyond = ("--partition", "0", "--before", str(2**70))
    assert "no committed records up to" in error("delete-records", "moved-there", *beyond)
    assert "'gone' does not exist" in error("delete-records", "gone", "--all")


def test_the_oldest_records_are_deleted(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-short", "--partitions", "2", *at)
    succeed("produce", "moved-short", *at, stdin=b"".join(b"%d\n" % i for i in range(100)))
    begins = succeed("topics", "delete-records", "moved-short", "--all", *at).splitlines()
    ends = [
        int(line.removeprefix(f"moved-short-{p} begins at offset "))
        for p, line in enumerate(begins)
    ]
    assert sum(ends) == 100
    assert succeed("consume", "moved-short", "--exit-at-end", *at) == ""
    again = ("delete-records", "moved-short", "--partition", "1", "--before", "0")
    assert succeed("topics", *again, *at) == f"moved-short-1 begins at offset {ends[1]}\n"


def test_lines_come_back_as_they_went(at: tuple[str, str], tmp_path: Path) -> None:
    succeed_here("topics", "create", "moved-lines", "--partitions", "1", *at)
    lines = [b"line %d %s" % (i, b"x" * (i % 100)) for i in range(50_000)]
    lines += [b"", b"\xff\x00 no text", "süß".encode()]
    content = b"\n".join(lines) + b"\n"
    done = headrace("produce", "moved-lines", "--compression", "lz4", *at, stdin=content)
    assert (done.returncode, done.stderr) == (0, b"50003 records acknowledged\n")
    read = headrace("consume", "moved-lines", "--exit-at-end", *at)
    assert read.returncode == 0
    assert read.stdout == content


def test_keys_choose_the_partition_and_order_is_kept_per_key(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-keyed", "--partitions", "3", *at)
    content = b"".join(b"key%d=%d\n" % (i % 10, i) for i in range(3000))
    succeed("produce", "moved-keyed", "--key-separator", "=", *at, stdin=content)
    read = succeed("consume", "moved-keyed", "--exit-at-end", "--json", *at)
    rows = [json.loads(line) for line in read.splitlines()]
    assert len(rows) == 3000
    assert len({row["partition"] for row in rows}) == 3
    for key in {row["key"] for row in rows}:
        own = [row for row in rows if row["key"] == key]
        assert len({row["partition"] for row in own}) == 1
        values = [int(row["value"]) for row in own]
        assert values == sorted(values)
    assert set(rows[0]) == {
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
    }


def test_a_line_without_a_key_ends_with_its_number_and_what_came_before_is_sent(
    at: tuple[str, str],
) -> None:
    succeed_here("topics", "create", "moved-half", "--partitions", "1", *at)
    error = fail("produce", "moved-half", "--key-separator", ":", *at, stdin=b"a:1\nb:2\nc\nd:4\n")
    assert error.startswith("line 3 of the input has no key separator ':'")
    read = succeed("consume", "moved-half", "--exit-at-end", "--key-separator", ":", *at)
    assert read == "a:1\nb:2\n"


def test_consume_begins_and_ends_where_it_is_told(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-window", "--partitions", "1", *at)
    succeed("produce", "moved-window", *at, stdin=b"".join(b"%d\n" % i for i in range(100)))
    assert (
        succeed("consume", "moved-window", "--from", "97", "--exit-at-end", *at) == "97\n98\n99\n"
    )
    assert succeed("consume", "moved-window", "--from", "5", "--max", "2", *at) == "5\n6\n"
    assert succeed("consume", "moved-window", "--from", "latest", "--timeout-ms", "300", *at) == ""
    error = fail("consume", "moved-window", "--from", "101", *at)
    assert error == "offset 101 is outside of moved-window-0, which has offsets from 0 to below 100"


def test_consume_follows_until_ctrl_c_and_then_exits_cleanly(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-live", "--partitions", "2", *at)
    command = start("consume", "moved-live", "--json", *at)
    try:
        assert command.stdout is not None
        for value in ("first", "second"):
            succeed("produce", "moved-live", *at, stdin=f"{value}\n".encode())
            assert json.loads(command.stdout.readline())["value"] == value
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0
        assert command.stderr is not None
        assert command.stderr.read() == ""
    finally:
        command.kill()
        command.communicate()


def test_a_reader_that_goes_away_ends_consume_without_a_word(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-pipe", "--partitions", "1", *at)
    succeed("produce", "moved-pipe", *at, stdin=b"some line of text\n" * 100_000)
    command = popen(
        [*COMMAND, "consume", "moved-pipe", *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert command.stdout is not None and command.stderr is not None
        assert command.stdout.readline() == b"some line of text\n"
        command.stdout.close()
        assert command.wait(60) == 0
        assert command.stderr.read() == b""
    finally:
        command.kill()
        command.communicate()


def test_lines_that_trickle_are_sent_without_waiting_for_more(at: tuple[str, str]) -> None:
    succeed_here("topics", "create", "moved-slow", "--partitions", "1", *at)
    command = popen(
        [*COMMAND, "produce", "moved-slow", *at],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert command.stdin is not None
        for number in (1, 2):
            command.stdin.write(b"%d\n" % number)
            command.stdin.flush()
            read = succeed("consume", "moved-slow", "--max", str(number), *at)
            assert read.split() == [str(i + 1) for i in range(number)]
        _, errors = command.communicate(timeout=60)
        assert errors == b"2 records acknowledged\n"
    finally:
        command.kill()
        command.wait()


def test_what_cannot_be_is_one_line(
    at: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def error(*arguments: str, status: int = 1) -> str:
        return fail_here(capsys, *arguments, *at, status=status)

    succeed_here("topics", "create", "moved-two", "--partitions", "2", *at)
    assert "'gone' does not exist" in error("produce", "gone")
    assert "'gone' does not exist" in error("consume", "gone")
    assert "there is no partition 2" in error("consume", "moved-two", "--partition", "2")
    assert "needs --partition" in error("consume", "moved-two", "--from", "3", status=2)
    assert "neither earliest nor latest" in error("consume", "moved-two", "--from", "x", status=2)


def test_a_broker_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with giving_up_after(bootstrap_timeout_ms=500):
        error = fail_here(capsys, "topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert "no broker answers" in error and "127.0.0.1:1" in error
    error = fail_here(capsys, "topics", "list", "--bootstrap-server", "here")
    assert "is not host:port" in error


def test_a_line_that_is_too_large_is_one_line_and_the_topic_stays_usable(
    at: tuple[str, str],
) -> None:
    limit = ("--config", "max.message.bytes=2000")
    succeed_here("topics", "create", "moved-small", "--partitions", "1", *limit, *at)
    error = fail("produce", "moved-small", *at, stdin=b"x" * 3000 + b"\n")
    assert "max.message.bytes" in error
    # Many lines together are larger than the limit, but go in batches that are not.
    succeed("produce", "moved-small", *at, stdin=b"some words\n" * 1000)
    assert succeed("consume", "moved-small", "--exit-at-end", *at) == "some words\n" * 1000


def test_dump_log_reads_what_the_brokers_wrote(at: tuple[str, str], directory: Path) -> None:
    succeed_here("topics", "create", "moved-dumped", "--partitions", "1", *at)
    succeed("produce", "moved-dumped", "--key-separator", ":", *at, stdin=b"k:v\nl:w\n")
    for broker in (1, 2, 3):
        folder = directory / f"broker-{broker}" / "data" / "moved-dumped-0"
        (log,) = folder.glob("*.log")
        (document,) = json.loads(succeed("dump-log", "--deep", "--json", log))
        records = [record for batch in document["batches"] for record in batch["records"]]
        assert [(record["key"], record["value"]) for record in records] == [("k", "v"), ("l", "w")]
