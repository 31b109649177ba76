"""The registry that writes is killed, and paused for longer than its session, again and again while
four clients register: each id is one schema's for ever, also of schemas that were deleted for good,
and all are read."""

import json
import random
import signal
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from integration_tests.registry.registries import SESSION_S, RegistryUnderFire, two_registries
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import EARLIEST, SimpleConsumer, TopicPartition
from storage_engine.tests.sampling import ALL_FAULTS, SEED

RUNS = 5 if ALL_FAULTS else 1
FAULTS = 10 if ALL_FAULTS else 4
CLIENTS = 4
LEAST_REGISTRATIONS = 400 if ALL_FAULTS else 100
"""In each run."""
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


@pytest.mark.parametrize("run", range(RUNS))
def test_ids_are_unique_and_never_used_again_whatever_befalls_the_writer(
    cluster, tmp_path, run
) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    choice = random.Random(f"{SEED} {run}")
    with two_registries(cluster, tmp_path, topic) as registries:
        clients = [Registering(number, registries) for number in range(CLIENTS)]
        for each in clients:
            each.thread.start()
        try:
            for _ in range(FAULTS):
                harm(registries, choice)
            wait_until(
                lambda: (
                    sum(len(each.ids) for each in clients) >= LEAST_REGISTRATIONS
                    or any(each.failure for each in clients)
                ),
                "enough registrations",
                timeout_s=PATIENCE_S,
            )
        finally:
            for each in clients:
                each.stop()
            for each in clients:
                each.thread.join()
        assert not [each.failure for each in clients if each.failure]
        ids = {text: id_ for each in clients for text, id_ in each.ids.items()}
        deleted = {text for each in clients for text in each.deleted}
        assert len(set(ids.values())) == len(ids)
        assert len(ids) >= LEAST_REGISTRATIONS and deleted
        for registry in registries:
            wait_until(lambda url=registry.url: has_all(url, ids, deleted), "all is read there")
    given: dict[int, str] = {}
    for key, value in records_of(cluster.bootstrap_servers, topic):
        if key["keytype"] == "SCHEMA" and value is not None:
            new = value["id"] not in given
            assert not new or value["id"] > max(given, default=0)
            assert given.setdefault(value["id"], value["schema"]) == value["schema"]
