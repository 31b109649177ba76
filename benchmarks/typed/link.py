"""A link of limited bandwidth between brokers and their clients, which counts the bytes from the
brokers.

It is a process of its own: in the process of a client the two would take turns, and the link would
slow the client down. All connections of all brokers share the bandwidth; what clients send does not
use up the bandwidth of what brokers send.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.support.brokers import HOST

if TYPE_CHECKING:
    import subprocess

_CHUNK_BYTES = 64 << 10


class Link:
    """A running link."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, folder: Path, ports: Mapping[int, int], bits_per_second: int
    ) -> Iterator["Link"]:
        """Run a link within the block. `ports`: the brokers' ports by the ports for clients."""
        command = [sys.executable, "-m", "benchmarks.typed.link", "--bits", str(bits_per_second)]
        command += [f"{ours}:{theirs}" for ours, theirs in ports.items()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = folder / "link.log"
        with tethered(
            command, log=log, folder=folder, environment=environment, talks=True
        ) as process:
            link = cls(process, log)
            link._answer()
            yield link

    def sent(self) -> int:
        """Return the bytes that went from brokers to clients until now."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            check_runs(self._process, "the link", self._log)
        return int(json.loads(line))


class _Direction:
    """One direction of the link: it carries one chunk after the other at its bandwidth."""

    def __init__(self, bits_per_second: int) -> None:
        self._bytes_per_second = bits_per_second / 8
        self._free_at = 0.0
        self.carried = 0

    async def carry(self, count: int) -> None:
        """Return when so many bytes have arrived."""
        self.carried += count
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + count / self._bytes_per_second
        await asyncio.sleep(self._free_at - now)


async def _copy(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: _Direction
) -> None:
    try:
        while chunk := await source.read(_CHUNK_BYTES):
            await direction.carry(len(chunk))
            sink.write(chunk)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


async def _serve(ports: Mapping[int, int], bits_per_second: int) -> None:
    to_clients, to_brokers = _Direction(bits_per_second), _Direction(bits_per_second)

    async def listen(ours: int, theirs: int) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                other = await asyncio.open_connection(HOST, theirs)
            except ConnectionError:
                writer.close()
                return
            await asyncio.gather(
                _copy(reader, other[1], to_brokers), _copy(other[0], writer, to_clients)
            )

        return await asyncio.start_server(connected, HOST, ours)

    servers = [await listen(ours, theirs) for ours, theirs in ports.items()]
    loop = asyncio.get_running_loop()
    print(json.dumps(0), flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(to_clients.carried), flush=True)
    for server in servers:
        server.close()


def main() -> None:
    """Forward until stdin ends; each line on it is answered with the bytes sent to clients."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bits", type=int, required=True)
    parser.add_argument("ports", nargs="+")
    args = parser.parse_args()
    pairs = (pair.split(":") for pair in args.ports)
    asyncio.run(_serve({int(ours): int(theirs) for ours, theirs in pairs}, args.bits))


if __name__ == "__main__":
    main()
