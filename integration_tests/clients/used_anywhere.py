"""Calls public methods of a client in every situation, each on a client of its own, and prints a
line of JSON with what came of each. A call that hangs ends the process, with all stacks on stderr.

    python -m integration_tests.clients.used_anywhere SERVERS CLIENT [METHOD…]
"""

import asyncio
import contextlib
import faulthandler
import functools
import inspect
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from storage_engine.client import (
    EARLIEST,
    Admin,
    AsyncConsumer,
    AsyncProducer,
    BulkReader,
    Consumer,
    GroupMetadata,
    HeadraceError,
    NewTopic,
    Producer,
    SimpleConsumer,
    TopicPartition,
)
from storage_engine.core.quotas import QuotaEntity

HANGS_S = 60
TOPIC = "anywhere"
TP = TopicPartition(TOPIC, 0)
NONE = TopicPartition("none", 0)
GROUP = GroupMetadata("g", -1, "", None)
SELF = object()
"""A method that is an attribute, or needs no call."""

Arguments = tuple[Any, ...]


def _entity() -> QuotaEntity:
    return QuotaEntity(user="nobody")


PRODUCER: dict[str, Arguments] = {
    "send": (TOPIC, b"x"),
    "send_table": (TOPIC, pa.table({"value": [b"x"]})),
    "flush": (),
    "ready": (TOPIC,),
    "partitions_for": (TOPIC,),
    "init_transactions": (),
    "begin_transaction": (),
    "send_offsets_to_transaction": ({TP: 1}, GROUP),
    "commit_transaction": (),
    "abort_transaction": (),
    "close": (),
}
CONSUMER: dict[str, Arguments] = {
    "subscribe": ([TOPIC],),
    "assign": ([TP],),
    "unsubscribe": (),
    "assignment": (),
    "partitions_of": (TOPIC,),
    "poll": (200,),
    "poll_table": (200,),
    "poll_rows": (200,),
    "tables": (),
    "ready": (200,),
    "position": (TP,),
    "seek": (TP, 0),
    "seek_to_beginning": (),
    "seek_to_end": (),
    "pause": ([TP],),
    "resume": ([TP],),
    "paused": (),
    "offsets_for_times": ({TP: 0},),
    "beginning_offsets": ([TP],),
    "end_offsets": ([TP],),
    "commit": (),
    "committed": ([TP],),
    "group_metadata": (),
    "close": (),
}
ADMIN: dict[str, Arguments] = {
    "create_topics": ([NewTopic(name="none", partitions=1, replication_factor=9)],),
    "alter_schema": ("none", "id INT"),
    "describe_schemas": ([TOPIC],),
    "delete_topics": (["none"],),
    "create_partitions": ({TOPIC: 1},),
    "list_topics": (),
    "describe_topics": ([TOPIC],),
    "describe_topic_configs": (TOPIC,),
    "describe_broker_configs": (1,),
    "alter_topic_configs": (TOPIC, {"retention.ms": "3600000"}),
    "alter_broker_configs": (1, {"log.retention.check.interval.ms": "1"}),
    "describe_client_quotas": (),
    "alter_client_quotas": (_entity, {}),
    "list_groups": (),
    "describe_group": ("none",),
    "delete_group": ("none",),
    "describe_group_configs": ("none",),
    "alter_group_configs": ("none", {"consumer.heartbeat.interval.ms": "5000"}),
    "group_offsets": ("none",),
    "alter_group_offsets": ("another", {TP: 0}),
    "reset_group_offsets": ("none",),
    "delete_group_offsets": ("none", [TP]),
    "list_offsets": ({TP: EARLIEST},),
    "delete_records": ({TP: 0},),
    "describe_cluster": (),
    "describe_log_dirs": (),
    "alter_replica_log_dirs": (1, {NONE: "/none"}),
    "alter_reassignments": ({NONE: None},),
    "list_reassignments": (),
    "elect_leaders": ([TP],),
    "list_transactions": (),
    "describe_transaction": ("none",),
    "describe_producers": ([TP],),
    "close": (),
}
BULK: dict[str, Arguments] = {"splits": ([TOPIC],), "read": (), "close": ()}
SIMPLE: dict[str, Arguments] = {
    "fetch": (TP, 0),
    "multifetch": ({TP: 0},),
    "offsets_before": (TP, EARLIEST, 1),
    "close": (),
}

Make = Callable[[str], Any]

CLIENTS: dict[str, tuple[type[Any], dict[str, Arguments], Make, Callable[[Any], object]]] = {
    "producer": (
        Producer,
        PRODUCER,
        lambda servers: Producer({"bootstrap.servers": servers}),
        lambda producer: [producer.send(TOPIC, b"work") for _ in range(200)],
    ),
    "consumer": (
        Consumer,
        CONSUMER,
        lambda servers: _assigned(
            Consumer({"bootstrap.servers": servers, "group.id": f"g{os.getpid()}"})
        ),
        lambda consumer: consumer.poll(200),
    ),
    "admin": (
        Admin,
        ADMIN,
        lambda servers: Admin({"bootstrap.servers": servers}),
        lambda admin: admin.describe_topics([TOPIC]),
    ),
    "bulk reader": (
        BulkReader,
        BULK,
        lambda servers: BulkReader({"bootstrap.servers": servers}),
        lambda reader: reader.splits([TOPIC]),
    ),
    "simple consumer": (SimpleConsumer, SIMPLE, SimpleConsumer, lambda each: each.fetch(TP, 0)),
}
"""Class, methods, what makes one, and what it is at while another call comes."""


def _assigned(consumer: Consumer) -> Consumer:
    consumer.assign([TP])
    return consumer


def public(kind: type[Any]) -> set[str]:
    """The names of what users may call."""
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def call(client: Any, name: str, arguments: Arguments) -> None:
    if name == "read":
        for split in client.splits([TOPIC]):
            for _ in client.read(split):
                pass
        return
    method = getattr(client, name)
    if name == "tables":
        client.seek_to_beginning()
        next(method())
    elif callable(method):
        method(*(each() if each is _entity else each for each in arguments))


def outcome(work: Callable[[], object]) -> str:
    """ "" where it works, else the error: one of ours has one line."""
    try:
        work()
    except HeadraceError as error:
        text = str(error)
        return f"{type(error).__name__}: {text}" if text and "\n" not in text else f"?? {error!r}"
    except Exception as error:  # noqa: BLE001 - the test says that there is none
        return f"?? {error!r}"
    return ""


def in_handler(client: Any, work: Callable[[Any], object], use: Callable[[], None]) -> list[str]:
    """A handler calls it while the main thread is at work."""
    found: list[str] = []
    signal.signal(signal.SIGUSR1, lambda *_: found.append(outcome(use)))
    with _later(lambda: os.kill(os.getpid(), signal.SIGUSR1)):
        deadline = time.monotonic() + HANGS_S
        while not found and time.monotonic() < deadline:
            found += [told] if (told := outcome(lambda: work(client))) else []
    return found


def in_thread(client: Any, work: Callable[[Any], object], use: Callable[[], None]) -> list[str]:
    """The main thread calls it while another one is at work."""
    found: list[str] = []
    done = threading.Event()

    def busy() -> None:
        while not done.is_set() and not found:
            found.extend([told] if (told := outcome(lambda: work(client))) else [])

    thread = threading.Thread(target=busy)
    thread.start()
    found.extend([outcome(use) for _ in range(3)])
    done.set()
    thread.join()
    return found


def in_child(client: Any, work: Callable[[Any], object], use: Callable[[], None]) -> list[str]:
    """The child of a fork calls it; what its parent has goes on."""
    outcome(lambda: work(client))
    reader, writer = os.pipe()
    if (child := _forked()) == 0:
        os.write(writer, outcome(use).encode() or b"works")
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    told = os.read(reader, 10_000).decode()
    os.close(reader)
    found = [told if status == 0 and told else f"?? the child ended with {status}"]
    if own := outcome(lambda: work(client)):
        found.append(f"?? in the parent: {own}")
    return ["" if each == "works" else each for each in found]


def _forked() -> int:
    """A fork, with a watchdog on both sides: that of the parent would be waited for in the
    child."""
    faulthandler.cancel_dump_traceback_later()
    child = os.fork()
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    return child


def when_closed(client: Any, _work: Callable[[Any], object], use: Callable[[], None]) -> list[str]:
    """After `close`."""
    client.close()
    return [outcome(use)]


def while_closing(client: Any, work: Callable[[Any], object], use: Callable[[], None]) -> list[str]:
    """While another thread closes the client."""
    outcome(lambda: work(client))
    with _later(client.close, 0):
        return [outcome(use) for _ in range(3)]


@contextlib.contextmanager
def _later(work: Callable[[], object], delay_s: float = 0.05) -> Iterator[None]:
    timer = threading.Timer(delay_s, work)
    timer.start()
    yield
    timer.join()


SITUATIONS = {
    "handler": in_handler,
    "thread": in_thread,
    "fork": in_child,
    "closed": when_closed,
    "closing": while_closing,
}


def asyncio_ones(servers: str) -> dict[str, list[str]]:
    """The asyncio ones after a fork, and when they are closed."""

    async def forked(client: Any, use: Callable[[], Any]) -> None:
        child = _forked()
        if child == 0:
            try:
                await use()
            except HeadraceError:
                os._exit(0)
            os._exit(1)
        assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
        await client.close()
        try:
            await use()
        except HeadraceError:
            return
        raise AssertionError("it is closed")

    async def run() -> None:
        producer = AsyncProducer({"bootstrap.servers": servers})
        await (await producer.send(TOPIC, b"x"))
        await forked(producer, lambda: producer.send(TOPIC, b"x"))
        consumer = AsyncConsumer({"bootstrap.servers": servers})
        await consumer.assign([TP])
        await consumer.poll(100)
        await forked(consumer, lambda: consumer.poll(100))

    asyncio.run(run())
    return {"all": [""]}


def main() -> None:
    servers, client_name, *names = sys.argv[1:]
    found: dict[str, list[str]] = {}
    if client_name == "asyncio":
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        found = asyncio_ones(servers)
    else:
        _, methods, make, work = CLIENTS[client_name]
        for situation, name in itertools.product(SITUATIONS, names or methods):
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            client = make(servers)
            use = functools.partial(call, client, name, methods[name])
            told = found[f"{name}, {situation}"] = SITUATIONS[situation](client, work, use)
            if closing := outcome(client.close):
                told.append(f"?? close: {closing}")
            faulthandler.cancel_dump_traceback_later()
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
