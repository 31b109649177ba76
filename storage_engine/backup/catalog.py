"""The backups of a store."""

from collections.abc import Sequence

from storage_engine.backup.errors import BackupError, DamagedError
from storage_engine.backup.manifest import (
    MANIFESTS,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_name,
    manifest_number,
)
from storage_engine.backup.store import BackupStore
from storage_engine.core.printable import printable

DATA = "data/"
ZNODES = "zookeeper/"


def numbers(store: BackupStore) -> list[int]:
    """The numbers of the backups, ascending."""
    found = (manifest_number(name) for name in store.names(MANIFESTS))
    return sorted(number for number in found if number is not None)


def read_manifest(store: BackupStore, number: int | None = None) -> Manifest:
    """Read one backup's manifest, the newest without a number."""
    known = numbers(store)
    if not known:
        raise BackupError(
            f"there is no backup in {printable(store.url)}: make one with headrace backup"
        )
    if number is None:
        number = known[-1]
    elif number not in known:
        raise BackupError(
            f"there is no backup {number} in {printable(store.url)}: it has "
            f"{known[0]} to {known[-1]} (headrace backup --list)"
        )
    name = manifest_name(number)
    manifest = decode_manifest(name, store.read(name))
    if manifest.number != number:
        raise DamagedError(f"{name} is the manifest of backup {manifest.number}: restore its name")
    return manifest


def newest_manifest(store: BackupStore) -> Manifest | None:
    return read_manifest(store) if numbers(store) else None


def write_manifest(store: BackupStore, manifest: Manifest) -> None:
    """From here on the backup exists. BackupError where another was faster."""
    data = encode_manifest(manifest)
    # An object store may have taken it when its answer was lost, and the request was repeated.
    if not store.put_new(manifest.name, data) and store.read(manifest.name) != data:
        raise BackupError(
            f"another backup into {printable(store.url)} has ended meanwhile: run one at a time; "
            "this one is dropped"
        )


def prune(store: BackupStore, keep: int) -> tuple[list[int], int]:
    """Delete all backups but the newest `keep`, and every file that none of the others needs.
    Return the numbers of the backups and the number of files. Files of a backup that runs stay."""
    known = numbers(store)
    gone, left = known[:-keep], known[-keep:]
    manifests = [read_manifest(store, number) for number in left]
    for number in gone:
        store.delete(manifest_name(number))
    needed = {file.name for manifest in manifests for file in manifest.files}
    newest = left[-1] if left else 0
    unneeded = [
        name
        for folder in (DATA, ZNODES)
        for name in (*store.names(folder), *store.unfinished(folder))
        if name not in needed and _number_in(name) <= newest
    ]
    for name in unneeded:
        store.delete(name)
    return gone, len(unneeded)


def suffix(number: int, backup_id: str) -> str:
    """The end of the names of a backup's files."""
    return f"-{number:08d}-{backup_id[:8]}"


def _number_in(name: str) -> int:
    """The number of the backup that has written a file."""
    parts: Sequence[str] = name.rpartition(".")[0].rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
