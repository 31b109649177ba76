"""What becomes of a user's SCRAM credentials by an AlterUserScramCredentials: pure functions.

Source: KIP-554.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.printable import printable
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SALT_BYTES_MIN,
    USER_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove; `mechanism` by its number in the protocol."""

    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A credential to make or to replace."""

    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


ScramChange = ScramDeletion | ScramUpsertion


def check_user(user: str) -> None:
    """Raises KafkaError for a name that no user can have."""
    if not user:
        raise _unacceptable("the name of a user must not be empty")
    # Names stand in logs.
    if not user.isprintable() or len(user.encode()) > USER_BYTES_MAX:
        raise _unacceptable(
            f"the name of a user must have printable characters, {USER_BYTES_MAX} bytes at most"
        )
    if user in (".", ".."):
        raise _unacceptable("a user can't be named '.' or '..'")


def checked(changes: Sequence[ScramChange]) -> dict[ScramMechanism, ScramCredential | None]:
    """The new credential of each mechanism, None to remove it. Raises KafkaError."""
    result: dict[ScramMechanism, ScramCredential | None] = {}
    for change in changes:
        mechanism = ScramMechanism.of_code(change.mechanism)
        if mechanism is None:
            raise KafkaError(
                f"there is no SCRAM mechanism {change.mechanism}, there are"
                f" {', '.join(f'{each.code} ({each.value})' for each in ScramMechanism)}",
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            )
        if mechanism in result:
            raise KafkaError(
                f"{mechanism.value} is changed twice in one request", ErrorCode.DUPLICATE_RESOURCE
            )
        match change:
            case ScramDeletion():
                result[mechanism] = None
            case ScramUpsertion():
                result[mechanism] = _credential(mechanism, change)
    return result


def applied(
    user: str,
    current: Mapping[str, str],
    changes: Mapping[ScramMechanism, ScramCredential | None],
) -> dict[str, str]:
    """The settings of the user afterwards. Raises KafkaError where there is nothing to remove."""
    result = dict(current)
    for mechanism, credential in changes.items():
        if credential is not None:
            result[mechanism.value] = credential.format()
        elif result.pop(mechanism.value, None) is None:
            raise KafkaError(
                f"user '{printable(user)}' has no {mechanism.value} credential to remove",
                ErrorCode.RESOURCE_NOT_FOUND,
            )
    return result


def _credential(mechanism: ScramMechanism, change: ScramUpsertion) -> ScramCredential:
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise _unacceptable(
            f"{change.iterations} iterations are not possible, but {ITERATIONS_MIN} to"
            f" {ITERATIONS_MAX}"
        )
    if not SALT_BYTES_MIN <= len(change.salt) <= SALT_BYTES_MAX:
        raise _unacceptable(
            f"a salt of {len(change.salt)} bytes is not possible, but of {SALT_BYTES_MIN} to"
            f" {SALT_BYTES_MAX}"
        )
    if len(change.salted_password) != mechanism.key_bytes:
        raise _unacceptable(
            f"a salted password of {mechanism.value} has {mechanism.key_bytes} bytes, not"
            f" {len(change.salted_password)}"
        )
    return ScramCredential.of_salted_password(
        mechanism, change.salted_password, salt=change.salt, iterations=change.iterations
    )


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)
