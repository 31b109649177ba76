"""A password or key among the settings: whoever prints it sees that there is one, and no more."""

from typing import Final

HIDDEN: Final = "[hidden]"


class Secret:
    """A text that must not be shown. `reveal` is called where it is used, and nowhere else."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)
