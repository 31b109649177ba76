"""What is copied in this process must not touch a mapping: a page that the medium can't give would
end the process (SIGBUS), where a system call fails in order."""

import signal
import subprocess
import sys

from storage_engine.net.limits import SMALL_WRITE_BYTES

JOINS_A_SLICE = """
import os, sys
from pathlib import Path
from storage_engine.core.errors import LogStorageError
from storage_engine.net.frames import joined
from storage_engine.tests.log.support import append, open_log, read_one
from storage_engine.log.log_config import LogConfig

log = open_log(Path(sys.argv[1]), LogConfig())
append(log, payload=bytes(int(sys.argv[2])))
slice = read_one(log, 0)
joined([slice])
# As a page that can't be read: beyond the end of the file there is none.
os.truncate(slice._source.file.path, 4096)
try:
    joined([b"header", slice])
except LogStorageError as error:
    print("refused:", error)
"""


def test_a_small_answer_from_a_page_that_can_not_be_read_ends_no_broker(tmp_path):
    """Small answers are joined before they are sent."""
    for size in (100 << 10 >> 3, SMALL_WRITE_BYTES - 1000):
        command = [sys.executable, "-c", JOINS_A_SLICE, str(tmp_path / str(size)), str(size)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode != -signal.SIGBUS
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("refused: ")
