"""Folders and object stores hold what was written, whole or not at all."""

import pytest

from storage_engine.backup.errors import BackupStoreError, DamagedError
from storage_engine.backup.folder_store import FolderStore
from storage_engine.backup.places import open_store
from storage_engine.backup.store import checked_pieces
from storage_engine.core.errors import ConfigError
from storage_engine.tests.backup.s3_server import options_of, s3_server


@pytest.fixture(scope="module")
def served():
    with s3_server("kept") as found:
        yield found


@pytest.fixture(params=["folder", "object store"])
def store(request, served, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "place")
    return open_store(f"s3://kept/{tmp_path.name}", options_of(served[0]))


def test_a_file_has_its_name_when_it_is_closed(store):
    writer = store.writer("data/a/1.log")
    writer.write(b"one")
    writer.write(memoryview(b"two"))
    assert store.names("data/") == []
    stored = writer.close()
    assert store.names("data/") == ["data/a/1.log"]
    assert b"".join(checked_pieces(store, stored)) == b"onetwo"


def test_a_file_that_is_abandoned_is_none(store):
    writer = store.writer("data/1.log")
    writer.write(b"one")
    writer.abandon()
    assert store.names("") == []


def test_a_file_larger_than_a_piece_is_read_as_it_was_written(store):
    content = bytes(range(256)) * 40_000
    writer = store.writer("large")
    writer.write(content)
    stored = writer.close()
    pieces = [bytes(piece) for piece in checked_pieces(store, stored)]
    assert len(pieces) > 1
    assert b"".join(pieces) == content


def test_of_two_new_files_of_one_name_the_first_stays(store):
    assert store.put_new("backups/1.json", b"one")
    assert not store.put_new("backups/1.json", b"two")
    assert store.read("backups/1.json") == b"one"
    store.delete("backups/1.json")
    store.delete("backups/1.json")
    assert store.names("") == []


def test_what_is_missing_or_changed_is_damage(store):
    with pytest.raises(DamagedError, match=r"nothing.* is missing: take another backup"):
        store.read("nothing")
    writer = store.writer("file")
    writer.write(b"one")
    stored = writer.close()
    store.delete("file")
    assert store.put_new("file", b"two")
    with pytest.raises(DamagedError, match="is damaged"):
        list(checked_pieces(store, stored))


def test_a_store_without_rights_is_told_in_a_line(served):
    url, guard = served
    store = open_store("s3://kept/refused", options_of(url))
    guard.refuses = True
    try:
        with pytest.raises(BackupStoreError, match="can't write s3://kept/refused/file") as caught:
            store.put_new("file", b"")
        assert "\n" not in str(caught.value)
        with pytest.raises(BackupStoreError, match="can't list"):
            store.names("")
    finally:
        guard.refuses = False


@pytest.mark.parametrize("place", ["", "ftp://host/place"])
def test_a_place_of_another_kind_is_refused(place):
    with pytest.raises(ConfigError, match="folder"):
        open_store(place)
