"""Where the pictures of docs/console.md are put, and how large they may be.

    HEADRACE_FAULTS=full HEADRACE_PICTURES=1 .venv/bin/python -m pytest …

writes them anew into docs/images; else they are made and not kept.
"""

import os
from pathlib import Path

from integration_tests.support.command_line import ROOT

TALL = (1440, 1000)
LARGEST_BYTES = 150_000
"""The bytes of one: everybody who clones the repository loads them."""


def pictures_in(tmp_path: Path) -> Path:
    return ROOT / "docs" / "images" if os.environ.get("HEADRACE_PICTURES") == "1" else tmp_path
