"""Keys of caches of schemas: to compare two schemas takes as long as to read one."""

from typing import Generic, TypeVar

_Kept = TypeVar("_Kept")


class Same(Generic[_Kept]):
    """A key for a value, which it holds; it is equal to keys for the same object alone."""

    def __init__(self, value: _Kept) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
