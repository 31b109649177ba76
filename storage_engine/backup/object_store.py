"""Backups in an S3-compatible store, through obstore (extra `backup`)."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage_engine.backup.store import PIECE_BYTES, BackupStore, FileWriter
from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_RETRIES = 4
_RETRY_TIMEOUT_S = 60
_PART_BYTES = 8 << 20
"""The bytes that are sent at a time. A store takes 10,000 parts of a file."""
_CLIENT_OPTIONS = ("allow_http", "allow_invalid_certificates")


class ObjectBackupStore(BackupStore):
    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        """`options`: as obstore names them, such as aws_endpoint; credentials may come from the
        environment."""
        self.url = url
        config: S3Config = {}
        client: ClientConfig = {}
        for name, value in options.items():
            bare = name.lower()
            if bare in _CLIENT_OPTIONS:
                client[bare] = value.lower() == "true"  # type: ignore[literal-required]
            else:
                config[bare] = value  # type: ignore[literal-required]
        retries: RetryConfig = {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S),
        }
        try:
            self._store = S3Store.from_url(
                url, config=config, client_options=client, retry_config=retries
            )
        except (BaseError, OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{printable(url)}: {_first_line(error)}") from None

    def writer(self, name: str) -> FileWriter:
        return _ObjectWriter(self, name)

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, name, data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise self.failed("write", name, _first_line(error)) from None
        return True

    def pieces(self, name: str) -> Iterator[memoryview]:
        try:
            for piece in obstore.get(self._store, name).stream(min_chunk_size=PIECE_BYTES):
                yield memoryview(piece)
        except FileNotFoundError:
            raise self.missing(name) from None
        except (BaseError, OSError) as error:
            raise self.failed("read", name, _first_line(error)) from None

    def names(self, prefix: str) -> list[str]:
        try:
            pages = obstore.list(self._store, prefix or None)
            return sorted(each["path"] for page in pages for each in page)
        except (BaseError, OSError) as error:
            raise self.failed("list", prefix, _first_line(error)) from None

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise self.failed("delete", name, _first_line(error)) from None


class _ObjectWriter(FileWriter):
    def __init__(self, store: ObjectBackupStore, name: str) -> None:
        super().__init__(name)
        self._owner = store
        try:
            self._writer = obstore.open_writer(store._store, name, buffer_size=_PART_BYTES)
        except (BaseError, OSError) as error:
            raise store.failed("write", name, _first_line(error)) from None

    def _write(self, data: "bytes | memoryview") -> None:
        try:
            self._writer.write(bytes(data))
        except (BaseError, OSError) as error:
            raise self._owner.failed("write", self.name, _first_line(error)) from None

    def _close(self) -> None:
        try:
            self._writer.close()
        except (BaseError, OSError) as error:
            raise self._owner.failed("write", self.name, _first_line(error)) from None

    def abandon(self) -> None:
        """An upload that is not ended is no file."""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return printable(lines[0][:300]) if lines else type(error).__name__
