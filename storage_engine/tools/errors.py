"""Errors of the command line. The text is one line, for a person, with what to do next."""

from storage_engine.core.errors import HeadraceError


class CommandError(HeadraceError):
    """The command failed: exit status 1."""


class UsageError(HeadraceError):
    """The command was called with arguments that can't be right: exit status 2."""


class OutputClosedError(HeadraceError):
    """The reader of our standard output has gone (`headrace consume … | head`): the command ends,
    as if done.
    """
