"""The Spark job of `job.py` as a child process of the demo.

Whatever happens, no process of it outlives `stop`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

_JOB = Path(__file__).with_name("job.py")
_STOP_SECONDS = 20

_NO_WORKER = "Python worker failed to connect back"
"""Spark gives each of its Python processes ten seconds to start, which a busy machine may need."""

_MOST_STARTS_AGAIN = 3

_SPARK_ARGUMENTS = (
    "--master local[2]",
    "--driver-memory 1g",
    "--conf spark.ui.enabled=false",
    "--conf spark.ui.showConsoleProgress=false",
    "pyspark-shell",
)


class StreamError(Exception):
    """The Spark job ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The figures of a micro-batch, as the job printed them."""

    number: int
    rows: int
    late: int
    milliseconds: int
    watermark_ms: int
    """The watermark in event time, ms: hours that ended by then are written."""
    read: dict[str, dict[str, int]]
    """End offset, exclusive, by topic and partition."""


@dataclass(slots=True)
class StreamProgress:
    """The micro-batches so far; `batches` grows at its end only."""

    starts: int = 0
    """How many drivers have begun to run the query."""
    batches: list[Batch] = field(default_factory=list)

    @property
    def started(self) -> bool:
        return self.starts > 0

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def late(self) -> int:
        return sum(batch.late for batch in self.batches)

    def has_read(self, ends: dict[str, dict[str, int]]) -> bool:
        """Whether the newest micro-batch ended at or beyond all of these offsets."""
        if not self.batches:
            return False
        read = self.batches[-1].read
        return all(
            read.get(topic, {}).get(partition, 0) >= end
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        )

    def has_written(self, end_ms: int) -> bool:
        """Whether every hour that ended by `end_ms`, in event time, is written."""
        return bool(self.batches) and self.batches[-1].watermark_ms >= end_ms


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """The address to which queries post their progress."""

    url: str
    token: str | None = field(default=None, repr=False)


class Stream:
    """The running job."""

    def __init__(
        self,
        bootstrap_servers: str,
        checkpoint: Path,
        log_file: Path,
        config: Path | None = None,
        console: ConsoleAddress | None = None,
    ) -> None:
        """`config`: the file with a client's settings, for a secured cluster. `console`: where the
        query posts its progress."""
        self.progress = StreamProgress()
        self._checkpoint = checkpoint
        self._log_file = log_file
        self._command = [
            sys.executable,
            str(_JOB),
            f"--bootstrap-servers={bootstrap_servers}",
            f"--checkpoint={checkpoint}",
            *([] if config is None else [f"--client-config={config}"]),
            *([] if console is None else [f"--console={console.url}"]),
        ]
        # Not as an argument: all users of the machine can read arguments.
        self._token = console.token if console is not None else None
        self._starts_again_left = _MOST_STARTS_AGAIN
        log_file.unlink(missing_ok=True)
        self._start()

    def _start(self) -> None:
        self._starts_before = self.progress.starts
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYSPARK_SUBMIT_ARGS": " ".join(_SPARK_ARGUMENTS),
                    # Else Spark's workers would be the first python3 on the path.
                    "PYSPARK_PYTHON": sys.executable,
                    **({} if self._token is None else {"HEADRACE_CONSOLE_TOKEN": self._token}),
                },
                # A group of its own: Ctrl-C reaches the demo, which stops the job in order.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="stream-progress", daemon=True)
        self._reader.start()

    def check(self) -> None:
        """Raises StreamError when the job has ended. One that a busy machine has kept from starting
        is started again, from its checkpoint."""
        status = self._process.poll()
        if status is None:
            return
        words = self._last_words()
        if _NO_WORKER not in words or not self._starts_again_left:
            raise StreamError(f"the Spark job ended by itself with status {status}: {words}")
        self._starts_again_left -= 1
        self._kill()
        self.progress.starts = self._starts_before
        self._start()

    def batch_under_way(self) -> int | None:
        """The micro-batch that is planned and not done, as the checkpoint has it."""
        planned, done = (self._newest(name) for name in ("offsets", "commits"))
        return planned if planned > done else None

    def kill_and_start_again(self) -> None:
        """SIGKILL to the driver and all that is in its group; the next one has the checkpoint."""
        self._kill()
        self._start()

    def stop(self) -> None:
        """Ends the job and everything it started."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(b'{"started"'):
                    self.progress.starts += 1
                elif line.startswith(b'{"batch"'):
                    self.progress.batches.append(_batch(json.loads(line)))

    def _newest(self, log: str) -> int:
        """Number of the newest entry of one of Spark's logs in the checkpoint; -1 for none."""
        names = (entry.name for entry in (self._checkpoint / log).glob("*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _last_words(self) -> str:
        lines = self._log_file.read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return f"{(errors or lines or ['it said nothing'])[-1].strip()} (see {self._log_file})"


def _batch(line: dict[str, Any]) -> Batch:
    read: dict[str, dict[str, int]] = {}
    for offsets in line["read"]:
        # None before the first end offset. "@from" is where the source began.
        topics = json.loads(offsets) if isinstance(offsets, str) else offsets or {}
        read.update({name: ends for name, ends in topics.items() if not name.startswith("@")})
    return Batch(
        number=line["batch"],
        rows=line["rows"],
        late=line["late"],
        milliseconds=line["milliseconds"],
        watermark_ms=_milliseconds(line["watermark"]),
        read=read,
    )


def _milliseconds(moment: str | None) -> int:
    """The ms since 1970 of a time in Spark's format; 0 for None."""
    return 0 if moment is None else int(datetime.fromisoformat(moment).timestamp() * 1000)
