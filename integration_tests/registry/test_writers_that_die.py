"""The registry that writes is killed, and paused for longer than its session, again and again while
four clients register; so are the brokers that lead `_schemas` and its transactions. Each id is one
schema's for ever, also of schemas that were deleted for good, and all are read, alike everywhere.
"""

import json
import random
import signal
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.registry.registries import SESSION_S, RegistryUnderFire, two_registries
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    leader_of,
    wait_for_isr,
    wait_until,
)
from storage_engine.client import EARLIEST, SimpleConsumer, TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import ALL_FAULTS, SEED

FAULTS, REGISTRATIONS = (50, 2_000) if ALL_FAULTS else (4, 100)
DEATHS, REGISTRATIONS_AT_DEATHS = (10, 600) if ALL_FAULTS else (2, 60)
CLIENTS = 4
REQUEST_S = 60
PATIENCE_S = 120


def ask(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The status and document of an answer; OSError without one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url + path, data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


class Registering:
    """A client that registers schemas of its own, and deletes some of them for good."""

    def __init__(self, number: int, registries: Sequence[RegistryUnderFire]) -> None:
        self.number = number
        self._urls = [each.url for each in registries]
        self.ids: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.count = 0
        self.failure: BaseException | None = None
        self._ends = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def stop(self) -> None:
        self._ends.set()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._register_one()
        except BaseException as error:
            self.failure = error
            raise

    def _register_one(self) -> None:
        self.count += 1
        name = f"C{self.number}N{self.count}"
        text = json.dumps({"type": "record", "name": name, "fields": []})
        subject = f"{name}-value"
        document = self._until_done("POST", f"/subjects/{subject}/versions", {"schema": text})
        self.ids[text] = document["id"]
        if self.count % 10 == 0:
            self._until_done("DELETE", f"/subjects/{subject}", gone=(404,))
            self._until_done("DELETE", f"/subjects/{subject}?permanent=true", gone=(404,))
            self.deleted.add(text)

    def _until_done(
        self, method: str, path: str, body: Any = None, gone: tuple[int, ...] = ()
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        tries = self.number
        while time.monotonic() < deadline:
            tries += 1
            try:
                status, document = ask(self._urls[tries % 2], method, path, body)
            except (OSError, ValueError):
                time.sleep(0.1)
                continue
            # What failed midway may have been done: then a deletion finds nothing any more.
            if status == 200 or status in gone:
                return document
            assert status >= 500, (method, path, document)
            time.sleep(0.1)
        raise AssertionError(f"{method} {path} was not done in {PATIENCE_S} s")


def harm(registries: list[RegistryUnderFire], choice: random.Random) -> None:
    """Kill the writer, or pause it for longer than its session; it is there again after that."""
    told = registries[0].writer() or registries[1].writer()
    writer = next((each for each in registries if each.url == told), registries[0])
    if choice.random() < 0.5:
        writer.kill()
        time.sleep(choice.uniform(0, SESSION_S))
        writer.start()
        return
    writer.send(signal.SIGSTOP)
    try:
        time.sleep(SESSION_S + choice.uniform(0.5, 2))
    finally:
        writer.send(signal.SIGCONT)
    time.sleep(choice.uniform(0, 1))


def has_all(url: str, ids: dict[str, int], deleted: set[str]) -> bool:
    """Whether a registry has all, and nothing that was deleted; another may lag behind a moment."""
    for text, schema_id in ids.items():
        status, document = ask(url, "GET", f"/schemas/ids/{schema_id}")
        if (status == 404) != (text in deleted):
            return False
        assert status == 404 or json.loads(document["schema"]) == json.loads(text)
    return True


def records_of(bootstrap_servers: str, topic: str) -> list[tuple[Any, Any]]:
    tp = TopicPartition(topic, 0)
    found: list[tuple[Any, Any]] = []
    with SimpleConsumer(bootstrap_servers, isolation="read_committed") as consumer:
        (offset,) = consumer.offsets_before(tp, EARLIEST, 1)
        while True:
            fetched = consumer.fetch(tp, offset, max_wait_ms=2_000)
            if fetched.next_offset == offset:
                return found
            offset = fetched.next_offset
            found += [
                (json.loads(each.key), None if each.value is None else json.loads(each.value))
                for each in fetched.messages
            ]


def everything_at(url: str) -> list[Any]:
    """All that a registry tells of schemas, deleted ones too, and of subjects."""
    answers = [
        ask(url, "GET", f"/{path}?deleted=true") for path in ("schemas", "subjects", "config")
    ]
    assert {status for status, _ in answers} == {200}
    return [document for _, document in answers]


def registered_under(
    faults: Sequence[Callable[[], None]],
    registrations: int,
    registries: list[RegistryUnderFire],
) -> tuple[dict[str, int], set[str]]:
    """The ids of schemas that four clients registered meanwhile, and those that were deleted for
    good. A fault comes each time that so many more are registered."""
    clients = [Registering(number, registries) for number in range(CLIENTS)]

    def wait_for(count: int) -> None:
        wait_until(
            lambda: (
                sum(len(each.ids) for each in clients) >= count
                or any(each.failure for each in clients)
            ),
            f"{count} registrations",
            timeout_s=PATIENCE_S,
        )

    for each in clients:
        each.thread.start()
    try:
        for number, fault in enumerate(faults):
            wait_for(registrations * number // len(faults))
            fault()
        wait_for(registrations)
    finally:
        for each in clients:
            each.stop()
        for each in clients:
            each.thread.join()
    assert not [each.failure for each in clients if each.failure]
    ids = {text: id_ for each in clients for text, id_ in each.ids.items()}
    deleted = {text for each in clients for text in each.deleted}
    assert sum(len(each.ids) for each in clients) == len(ids) >= registrations and deleted
    return ids, deleted


def check_all_is_kept(
    cluster: Any,
    topic: str,
    registries: list[RegistryUnderFire],
    ids: dict[str, int],
    deleted: set[str],
    folder: Path,
) -> None:
    assert len(set(ids.values())) == len(ids)
    for registry in registries:
        wait_until(lambda url=registry.url: has_all(url, ids, deleted), "all is read there")
    late = RegistryUnderFire(cluster, folder, topic)
    try:
        late.start()
        everything = everything_at(late.url)
        assert len(everything[0]) >= len(ids) - len(deleted)
        for registry in registries:
            wait_until(
                lambda url=registry.url: everything_at(url) == everything, "the same everywhere"
            )
    finally:
        late.kill()
    given: dict[int, str] = {}
    for key, value in records_of(cluster.bootstrap_servers, topic):
        if key["keytype"] == "SCHEMA" and value is not None:
            new = value["id"] not in given
            assert not new or value["id"] > max(given, default=0)
            assert given.setdefault(value["id"], value["schema"]) == value["schema"]


def test_ids_are_unique_and_never_used_again_whatever_befalls_the_writer(cluster, tmp_path) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    choice = random.Random(SEED)
    with two_registries(cluster, tmp_path, topic) as registries:
        faults = [lambda: harm(registries, choice)] * FAULTS
        ids, deleted = registered_under(faults, REGISTRATIONS, registries)
        check_all_is_kept(cluster, topic, registries, ids, deleted, tmp_path)


def test_ids_are_unique_and_never_used_again_whichever_broker_dies(cluster, tmp_path) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    transactions = state_partition(f"headrace-registry-{topic}", COORDINATOR_PARTITIONS)
    client = admin(cluster)

    def kill_leader(name: str, partition: int) -> None:
        wait_for_isr(client, name, 3, partition)
        victim = leader_of(client, name, partition)
        cluster.kill_broker(victim)
        cluster.start_broker(victim)

    with two_registries(cluster, tmp_path, topic) as registries:
        faults = [
            partial(kill_leader, topic, 0),
            partial(kill_leader, "__transaction_state", transactions),
        ]
        faults *= DEATHS // len(faults)
        ids, deleted = registered_under(faults, REGISTRATIONS_AT_DEATHS, registries)
        check_all_is_kept(cluster, topic, registries, ids, deleted, tmp_path)
