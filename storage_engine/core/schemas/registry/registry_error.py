"""The errors of a registry's requests: Confluent's codes and texts.

Code | meaning                                   Code | meaning
---- | ----------------------------------------- ---- | ------------------------------------------
40401 | there is no such subject                 409   | the schema is incompatible
40402 | there is no such version                 42201 | the schema is invalid
40403 | there is no such schema                  42202 | the version is no number, nor "latest"
40404 | the subject is soft deleted              42203 | the level of compatibility is unknown
40405 | the subject is not soft deleted          42204 | the mode is unknown
40406 | the version is soft deleted              42205 | the mode or the ids do not allow it
40407 | the version is not soft deleted          42206 | other schemas refer to it
40408 | the subject has no level of its own      42208 | the subject's name is not valid
40409 | the subject has no mode of its own       42209 | the schema is too large
"""

from storage_engine.core.errors import HeadraceError
from storage_engine.core.printable import printable

INVALID_SCHEMA = 42201
INCOMPATIBLE = 409
TOO_LARGE = 42209
STORE_FAILED = 50001
TIMED_OUT = 50002
FORWARDING_FAILED = 50003
NO_WRITER = 50004


class RegistryError(HeadraceError):
    """A request that is refused. `code` is Confluent's; the HTTP status are its first digits."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(printable(text))
        self.code = code

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    which = "" if schema_id is None else f" {schema_id}"
    return RegistryError(40403, f"Schema{which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40405,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently "
        "deleted",
    )


def no_own_level(subject: str) -> RegistryError:
    return RegistryError(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_own_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {reason}")


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(
        42204,
        "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT.",
    )


def not_permitted(text: str) -> RegistryError:
    return RegistryError(42205, text)


def referred_to(subject: str, version: int) -> RegistryError:
    return RegistryError(
        42206,
        f"One or more references exist to the schema {{subject={subject},version={version}}}.",
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")
