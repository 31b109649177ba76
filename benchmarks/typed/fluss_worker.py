"""Fills and reads a table of Apache Fluss with its own Python client: reads jobs from stdin, a line
of JSON each, and answers each with another line.

Rule: it runs in the environment that has that client, and uses nothing of Headrace's product.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import fluss  # type: ignore[import-not-found]

from benchmarks.typed.columns import SCHEMA, made_of

if TYPE_CHECKING:
    from benchmarks.beside_kafka.told import Answer
    from benchmarks.typed.fluss import FlussJob


class _Worker:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def connected(cls, servers: str) -> "_Worker":
        settings = {"bootstrap.servers": servers, "writer.acks": "all"}
        return cls(await fluss.FlussConnection.create(fluss.Config(settings)))

    async def do(self, job: "FlussJob") -> "Answer":
        """Do a job, and return the rows and the seconds."""
        path = fluss.TablePath("fluss", job["table"])
        if job["kind"] == "fill":
            schema = fluss.Schema(SCHEMA)
            described = fluss.TableDescriptor(schema, bucket_count=job["buckets"])
            await self._connection.get_admin().create_table(path, described)
        table = await self._connection.get_table(path)
        started = time.perf_counter()
        rows = await (self._fill(table, job) if job["kind"] == "fill" else self._read(table, job))
        return {"rows": rows, "time_s": time.perf_counter() - started}

    async def _fill(self, table: Any, job: "FlussJob") -> int:
        writer = table.new_append().create_writer()
        for rows in made_of(0, job["rows"]):
            writer.write_arrow_batch(rows)
        await writer.flush()
        return job["rows"]

    async def _read(self, table: Any, job: "FlussJob") -> int:
        scan = table.new_scan().project_by_name(job["columns"])
        scanner = await scan.create_record_batch_log_scanner()
        scanner.subscribe_buckets(dict.fromkeys(range(job["buckets"]), fluss.EARLIEST_OFFSET))
        found = 0
        deadline = time.monotonic() + job["timeout_s"]
        while found < job["rows"]:
            found += (await scanner.poll_arrow(1_000)).num_rows
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} of {job['rows']} rows in {job['timeout_s']} s")
        return found


async def _serve(servers: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = await _Worker.connected(servers)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = await worker.do(json.loads(line))
        except Exception as error:  # noqa: BLE001 - reported to the caller, in one line
            answer = {"error": " ".join(str(error).split())}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    asyncio.run(_serve(parser.parse_args().servers))
