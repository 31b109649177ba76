"""The error of a text that is no schema."""

from storage_engine.core.errors import HeadraceError


class InvalidSchemaError(HeadraceError):
    """A text is no schema of its language, or is larger than is read; one line says where."""
