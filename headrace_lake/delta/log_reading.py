"""Reads single commits of a table's log: what others did, and what our own commit became.

Source: the protocol of Delta's transaction log, actions.
"""

import hashlib
import json
from dataclasses import dataclass

from headrace_lake.delta.store import StoreError, TableStore
from headrace_lake.protocol.foreign_changes import TableChange

COMMIT_ID = "headrace.commit.id"
"""In the information about a commit: the id of the batch that it commits."""

MOST_BYTES = 256 * 2**20
"""The most of one commit: a rewrite of a whole table by others lists all its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    change: TableChange
    digest: bytes
    """The digest of the commit's bytes: a version is written once."""


def has_log(store: TableStore) -> bool:
    """Whether there is a table. The library's own look holds all threads while a store hangs."""
    return any(True for _ in store.list("_delta_log"))


def commit_path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def read_commit(store: TableStore, version: int) -> LoggedCommit | None:
    """Return the commit that made the version; None when the log no longer has it."""
    content = store.read(commit_path(version))
    if content is None:
        return None
    try:
        change = _change(version, content)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise StoreError(
            f"{store.url}/{commit_path(version)} is not a commit of Delta: look whether the store "
            "is whole"
        ) from error
    return LoggedCommit(change=change, digest=hashlib.sha256(content).digest())


def _change(version: int, content: bytes) -> TableChange:
    operation, commit_id, configuration = "", None, None
    applications: dict[str, int] = {}
    appended = taken = 0
    for line in content.splitlines():
        if not line.strip():
            continue
        action = json.loads(line)
        if "add" in action:
            appended += action["add"]["dataChange"]
        elif "remove" in action:
            taken += action["remove"]["dataChange"]
        elif "txn" in action:
            applications[action["txn"]["appId"]] = action["txn"]["version"]
        elif "metaData" in action:
            configuration = action["metaData"].get("configuration") or {}
        elif "commitInfo" in action:
            operation = str(action["commitInfo"].get("operation", ""))
            commit_id = action["commitInfo"].get(COMMIT_ID)
    return TableChange(
        version=version,
        operation=operation,
        commit_id=commit_id,
        applications=applications,
        files_appended=appended,
        files_taken=taken,
        configuration=configuration,
    )
