"""Notes of commits from one process of a driver to another."""

import pytest

from connector import commit_notes
from connector.commit_notes import COMMITTED, CommitNotes, SinkCommit, tell_commit

COMMIT = SinkCommit(
    query="q", sink="s", batch_id=7, tasks=2, rows=100, duration_ms=5, outcome=COMMITTED
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    made = tmp_path / "notes"
    monkeypatch.setattr(commit_notes, "notes_folder", lambda: made)
    return made


def test_a_commit_is_told_to_every_listener():
    listeners = [CommitNotes(), CommitNotes()]
    tell_commit(COMMIT)
    for listener in listeners:
        (found,) = listener.take()
        assert (found.batch_id, found.tasks, found.rows) == (7, 2, 100)
        assert found.at_ms > 0
        assert listener.take() == []
        listener.close()


def test_without_a_listener_nothing_happens(folder):
    tell_commit(COMMIT)
    CommitNotes().close()
    tell_commit(COMMIT)
    assert list(folder.iterdir()) == []


def test_a_listener_that_takes_nothing_stops_no_commit():
    listener = CommitNotes()
    for _ in range(5_000):
        tell_commit(COMMIT)
    assert listener.take()
    listener.close()


def test_what_is_no_note_is_passed_over(folder):
    import socket

    listener = CommitNotes()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for hostile in (b"", b"\xff\x00", b"[]", b'{"query": 1}', b"{" * 4000):
            sender.sendto(hostile, str(next(folder.iterdir())))
    tell_commit(COMMIT)
    assert [each.batch_id for each in listener.take()] == [7]
    listener.close()


def test_a_folder_that_others_may_write_to_is_not_used(folder):
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        CommitNotes()
    tell_commit(COMMIT)


def test_what_a_killed_driver_has_left_is_removed(folder):
    folder.mkdir(mode=0o700)
    (folder / "4194999-abc").touch()
    CommitNotes().close()
    assert list(folder.iterdir()) == []
