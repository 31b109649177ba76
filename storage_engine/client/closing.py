"""Clients that hold connections are closed, best by a `with` block."""

import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from storage_engine.core.errors import HeadraceError


class Closing(ABC):
    """A client with a `close`, which the end of a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Releases all resources of the client."""

    def _close_after_error(self) -> None:
        """The end of a block that an error has left. That error must not be hidden by another."""
        with contextlib.suppress(HeadraceError):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._close_after_error()
