"""A process that gets jobs, a line of JSON each, and answers each with another line."""

import contextlib
import json
import select
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from benchmarks.beside_kafka.tethered import check_runs
from storage_engine.tools.errors import CommandError

if TYPE_CHECKING:
    import subprocess


class Told(TypedDict):
    """The fields of every job."""

    kind: str
    rows: int


class SparkJob(Told):
    """A job for a Spark; its `kind` decides which of the fields it has."""

    topic: NotRequired[str]
    out: NotRequired[str | None]
    """The topic to write; None: none is written."""
    rows_per_batch: NotRequired[int]
    columns: NotRequired[list[str]]
    where: NotRequired[str | None]
    registry: NotRequired[str]
    """The URL of the schema registry."""
    schema_id: NotRequired[int]


class BatchTook(TypedDict):
    """One micro-batch, or a whole batch job."""

    rows: int
    time_ms: float


class Answer(TypedDict, total=False):
    """The answer to a job, whose kind decides which of the fields it has."""

    batches: list[BatchTook]
    rows: int
    time_s: float
    digest: int
    error: str
    """Why the job failed, in one line."""


class ToldProcess:
    """A process that does jobs; its first answer, before any job, means that it is ready."""

    def __init__(
        self, what: str, process: "subprocess.Popen[str]", log: Path, job_s: float
    ) -> None:
        self.pid = process.pid
        self._what = what
        self._process = process
        self._log = log
        self._job_s = job_s

    def do(self, job: Told) -> Answer:
        """Do a job, and return its answer; CommandError when it fails."""
        assert self._process.stdin is not None
        # A process that has ended is reported below, with the last line of its log.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(job), file=self._process.stdin, flush=True)
        return self.answer(self._job_s)

    def answer(self, timeout_s: float) -> Answer:
        """Return the process's next answer; CommandError when there is none, or it is an error."""
        stream = self._process.stdout
        assert stream is not None
        if not select.select([stream], [], [], timeout_s)[0]:
            raise CommandError(
                f"{self._what} does not answer for {timeout_s:.0f} s, see {self._log}"
            )
        line = stream.readline()
        if not line:
            self._process.wait()
            check_runs(self._process, self._what, self._log)
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise CommandError(f"a job of {self._what} failed: {answer['error']}")
        return answer
