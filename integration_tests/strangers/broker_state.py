"""What a broker's process holds, and how long others wait for it."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from integration_tests.support.brokers_by_hand import HOST

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_PAUSE_S = 0.002


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class Waits:
    """How long each of many small requests took, in ms."""

    def __init__(self) -> None:
        self.each_ms: list[float] = []

    @property
    def longest_ms(self) -> float:
        return max(self.each_ms)

    def part_ms(self, part: float) -> float:
        """So long took that part of them at most."""
        return sorted(self.each_ms)[int((len(self.each_ms) - 1) * part)]


@contextlib.contextmanager
def asking_all_the_time(port: int) -> Iterator[Waits]:
    """A client that asks for the versions over and over: a turn of the loop is as long at most."""
    waits, is_over = Waits(), threading.Event()

    def ask() -> None:
        with socket.create_connection((HOST, port), timeout=30) as connection:
            while not is_over.is_set():
                begun_s = time.perf_counter()
                connection.sendall(API_VERSIONS)
                if not connection.recv(65536):
                    raise ConnectionError("the client that asks was closed")
                waits.each_ms.append((time.perf_counter() - begun_s) * 1000)
                is_over.wait(_PAUSE_S)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()
    assert waits.each_ms, "nothing was answered"
