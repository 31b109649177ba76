"""Files that are replaced in one step, and that only their owner can read."""

import errno
import os
from pathlib import Path

import pytest

from storage_engine.tools.local.secret_files import write_whole


def test_a_file_is_for_its_owner_alone_whatever_the_umask_and_the_file_before_it(tmp_path: Path):
    path = tmp_path / "secret"
    path.write_bytes(b"before")
    path.chmod(0o644)
    umask = os.umask(0)
    try:
        write_whole(path, b"secret")
    finally:
        os.umask(umask)
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600
    write_whole(path, b"for all", mode=0o644)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_leaves_the_file_of_before_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "secret"
    write_whole(path, b"before")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"after")
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert path.read_bytes() == b"before"
