"""The place of a table: a folder, or a prefix in an object store.

Everything that the library `deltalake` does not write itself goes through one client of object
stores, with the same options, named as in `deltalake` (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...).
"""

import io
import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store

from headrace_lake.protocol.stops import StopKind, TableStoppedError
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.printable import printable

if TYPE_CHECKING:
    from obstore.store import RetryConfig

SCHEMES = ("file", "s3", "s3a")
_CLIENT_OPTIONS = ("connect_timeout", "timeout", "proxy_url", "user_agent")
"""Options of connections, not of the store."""

_RETRIES = 4
_RETRY_TIMEOUT_S = 30
"""How long a request is repeated before its error is told; the caller pauses, and decides again."""

_PROBE = "_headrace_probe"
_PROBES = 4
"""Writes at once, of which one may have an effect."""

_PART_BYTES = 8 * 2**20
"""The bytes that are sent at a time. A store takes 10,000 parts, so a file may have 80 GiB."""


class StoreError(HeadraceError):
    """The store did not do what was asked; another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    path: str
    size_bytes: int
    last_modified: datetime


class TableStore:
    """The objects of one table; paths are relative to its location."""

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self.url = location_url(location)
        self.options = dict(options or {})
        self.folder = _folder_of(self.url)
        """The local folder; None for an object store."""
        try:
            if self.folder is None:
                self.options.setdefault("aws_conditional_put", "etag")
                self.options.setdefault("max_retries", str(_RETRIES))
                self.options.setdefault("retry_timeout", f"{_RETRY_TIMEOUT_S}s")
                self._store: ObjectStore = _s3_store(self.url, self.options)
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._store = LocalStore(self.folder)
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise ConfigError(f"location {printable(location)}: {first_line(error)}") from error

    def read(self, path: str) -> bytes | None:
        """Return the object; None when there is none."""
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._failed("read", path, error) from error

    def put_if_absent(self, path: str, value: bytes) -> bool:
        """Return False when there is an object of that name already."""
        try:
            obstore.put(self._store, path, value, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise self._failed("write", path, error) from error
        return True

    def exists(self, path: str) -> bool:
        try:
            obstore.head(self._store, path)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._failed("look up", path, error) from error
        return True

    def delete(self, path: str) -> None:
        """Nothing happens where there is no such object."""
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise self._failed("delete", path, error) from error

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects below the prefix, page by page."""
        try:
            for page in obstore.list(self._store, prefix or None):
                for each in page:
                    yield StoredObject(
                        path=each["path"],
                        size_bytes=each["size"],
                        last_modified=each["last_modified"],
                    )
        except (BaseError, OSError) as error:
            raise self._failed("list", prefix, error) from error

    def local_path(self, path: str) -> str | None:
        """Return the path of a file that others may open; None in an object store."""
        return None if self.folder is None else str(self.folder / path)

    def writer(self, path: str) -> "ObjectWriter":
        return ObjectWriter(self, path)

    def reader(self, path: str) -> "ObjectReader":
        """Return the object as a file that can be read from any place."""
        try:
            return ObjectReader(obstore.open_reader(self._store, path))
        except (BaseError, OSError) as error:
            raise self._failed("read", path, error) from error

    def prove_conditional_writes(self) -> None:
        """TableStoppedError unless of several writes of one name, at once and later, one has an
        effect."""
        path = f"{_PROBE}/{uuid.uuid4()}"
        values = [str(each).encode() for each in range(_PROBES)]
        try:
            with ThreadPoolExecutor(_PROBES) as pool:
                had_effect = list(pool.map(lambda each: self.put_if_absent(path, each), values))
            late = self.put_if_absent(path, b"late")
            kept = self.read(path)
            self.delete(path)
        except StoreError as error:
            raise TableStoppedError(
                StopKind.STORE,
                f"location {printable(self.url)} can't be written to, or has no conditional "
                f"writes: {error}",
            ) from error
        winners = [each for each, won in zip(values, had_effect, strict=True) if won]
        if winners != [kept] or late:
            raise TableStoppedError(
                StopKind.STORE,
                f"location {printable(self.url)} takes more than one write with If-None-Match: * "
                "of one name, so that writers would undo each other's commits: use a store with "
                "conditional writes, or a local folder",
            )

    def _failed(self, what: str, path: str, error: Exception) -> StoreError:
        return StoreError(
            f"could not {what} {printable(self.url)}/{printable(path)}: {first_line(error)}"
        )


class ObjectWriter:
    """A binary file that exists under its name when it is closed, whole. One that is not closed is
    a part of an upload, which stores forget, or a file with another name."""

    def __init__(self, store: TableStore, path: str) -> None:
        self._table_store = store
        self._path = path
        self.closed = False
        try:
            self._writer = obstore.open_writer(store._store, path, buffer_size=_PART_BYTES)
        except (BaseError, OSError) as error:
            raise store._failed("write", path, error) from error

    def write(self, data: bytes) -> int:
        try:
            return self._writer.write(data)
        except (BaseError, OSError) as error:
            raise self._table_store._failed("write", self._path, error) from error

    def flush(self) -> None:
        """Parts are sent when they are full."""

    def close(self) -> None:
        """Return when the object is there; in a local folder, when it is on the disk, too."""
        if self.closed:
            return
        self.closed = True
        try:
            self._writer.close()
            local = self._table_store.local_path(self._path)
            if local is not None:
                _sync(local)
        except (BaseError, OSError) as error:
            raise self._table_store._failed("write", self._path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()


class ObjectReader(io.RawIOBase):
    """A binary file, as Arrow wants one."""

    def __init__(self, file: "obstore.ReadableFile") -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        whole = size is None or size < 0
        return bytes(self._file.read() if whole else self._file.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def location_url(location: str) -> str:
    """Return the location as a URL; ConfigError for one of a kind that is not supported."""
    if "://" not in location:
        if not location:
            raise ConfigError("the location of a table is empty: name a folder or s3://...")
        return Path(location).absolute().as_uri()
    scheme = urlsplit(location).scheme
    if scheme not in SCHEMES:
        raise ConfigError(
            f"location {printable(location)}: '{printable(scheme)}' is not supported: use a "
            f"folder, or a URL with one of {', '.join(SCHEMES)}"
        )
    return location.rstrip("/")


def first_line(error: BaseException) -> str:
    """Return what the error says in its first line: libraries add the state of their requests."""
    lines = str(error).strip().splitlines()
    return printable(lines[0][:300]) if lines else type(error).__name__


def _folder_of(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _s3_store(url: str, options: Mapping[str, str]) -> S3Store:
    config: dict[str, str] = {}
    client: dict[str, str | bool] = {}
    for name, value in options.items():
        bare = name.lower().removeprefix("aws_")
        if bare in ("allow_http", "allow_invalid_certificates"):
            client[bare] = value.lower() == "true"
        elif bare in _CLIENT_OPTIONS:
            client[bare] = value
        elif bare not in ("max_retries", "retry_timeout"):
            config[f"aws_{bare}"] = value
    retries: RetryConfig = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S),
    }
    made: S3Store = S3Store.from_url(
        url,
        config=config,  # type: ignore[arg-type]
        client_options=client,  # type: ignore[arg-type]
        retry_config=retries,
    )
    return made


def _sync(path: str) -> None:
    for each in (path, str(Path(path).parent)):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
