"""One command at a time changes a cluster."""

from pathlib import Path

import pytest

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.directory_lock import directory_lock


def test_a_second_command_waits_for_the_first_and_then_gives_up(tmp_path: Path) -> None:
    with (
        directory_lock(tmp_path),
        pytest.raises(CommandError, match="another headrace command is running"),
        directory_lock(tmp_path, timeout_s=0.1),
    ):
        pass
    with directory_lock(tmp_path, timeout_s=0.1):
        pass
