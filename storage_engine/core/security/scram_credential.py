"""The credential of a SCRAM user that a broker stores in place of the password.

In ZooKeeper it is one of the settings of /config/users/<user>, named by the mechanism, as Kafka
writes it: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>`. The library
scramp refuses salts below twelve bytes since 1.5; RFC 5802 does not, nor does Kafka, so that there
are users with shorter ones, which are accepted here. Source: RFC 5802, KIP-84, KIP-554.
"""

import enum
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

from storage_engine.core.errors import HeadraceError

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""Kafka's bounds for new credentials: each log-in costs the client that many hashes."""

SALT_BYTES_MIN, SALT_BYTES_MAX = 1, 256
"""Kafka accepts any length; its own tools make 26 bytes and more."""

USER_BYTES_MAX = 255
"""The longest name of a user: longer ones cost a log-in more to prepare than it costs to ask."""


class ScramMechanism(enum.Enum):
    """The mechanisms, with Kafka's numbers of them in requests."""

    code: int

    def __new__(cls, value: str, code: int) -> "ScramMechanism":
        member = object.__new__(cls)
        member._value_ = value
        member.code = code
        return member

    SHA_256 = ("SCRAM-SHA-256", 1)
    SHA_512 = ("SCRAM-SHA-512", 2)

    @classmethod
    def of_code(cls, code: int) -> "ScramMechanism | None":
        return next((each for each in cls if each.code == code), None)

    @classmethod
    def named(cls, name: str) -> "ScramMechanism":
        """Return the mechanism of that name; ValueError for an unknown one."""
        return cls(name)  # type: ignore[call-arg]  # mypy takes the members' arguments for it

    @property
    def hash(self) -> Callable[[bytes], "hashlib._Hash"]:
        return hashlib.sha256 if self is ScramMechanism.SHA_256 else hashlib.sha512

    @property
    def key_bytes(self) -> int:
        return self.hash(b"").digest_size


class ScramCredentialError(HeadraceError):
    """A stored credential is malformed, or a requested one is impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The keys by which a broker verifies a password and proves that it knows the user."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Hash a password (milliseconds); ScramCredentialError if SASL can't carry it."""
        salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
        return cls.of_salted_password(mechanism, salted, salt=salt, iterations=iterations)

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Return the credential of a password that the client salted (KIP-554)."""
        name = mechanism.hash(b"").name
        client_key = hmac.digest(salted_password, b"Client Key", name)
        return cls(
            salt=salt,
            stored_key=mechanism.hash(client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", name),
            iterations=iterations,
        )

    def format(self) -> str:
        """Return the credential's text in ZooKeeper."""
        return (
            f"salt={_text(self.salt)},stored_key={_text(self.stored_key)},"
            f"server_key={_text(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, mechanism: ScramMechanism, text: str) -> "ScramCredential":
        """Parse the text; ScramCredentialError, which repeats nothing of it, if malformed."""
        fields: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if not equals or key in fields:
                raise ScramCredentialError("it must be salt=,stored_key=,server_key=,iterations=")
            fields[key] = value
        if set(fields) != {"salt", "stored_key", "server_key", "iterations"}:
            raise ScramCredentialError("it must be salt=,stored_key=,server_key=,iterations=")
        keys = _bytes(fields, "stored_key"), _bytes(fields, "server_key")
        if {len(key) for key in keys} != {mechanism.key_bytes}:
            raise ScramCredentialError(
                f"its keys must have the {mechanism.key_bytes} bytes of {mechanism.value}"
            )
        salt = _bytes(fields, "salt")
        if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
            raise ScramCredentialError(
                f"its salt must have {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes, not {len(salt)}"
            )
        count = fields["iterations"]
        # Others than Kafka's tools may have written more: they cost clients time, not brokers.
        if not (count.isascii() and count.isdigit() and len(count) <= 7):
            raise ScramCredentialError("its iterations must be a whole number below 10,000,000")
        if int(count) < ITERATIONS_MIN:
            raise ScramCredentialError(f"its iterations must be {ITERATIONS_MIN} or more")
        return cls(salt=salt, stored_key=keys[0], server_key=keys[1], iterations=int(count))


def salted_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password that a client sends in place of a new password (milliseconds).
    ScramCredentialError for a password that SASL can't carry."""
    import scramp
    from scramp.utils import saslprep

    try:
        prepared = saslprep(password)
    except scramp.ScramException:
        raise _not_allowed() from None
    name = mechanism.hash(b"").name
    return hashlib.pbkdf2_hmac(name, prepared.encode(), salt, iterations)


def _not_allowed() -> ScramCredentialError:
    return ScramCredentialError(
        "the password has characters that SASL does not allow (control characters, "
        "private ones or mixed directions): choose another"
    )


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def _bytes(fields: dict[str, str], key: str) -> bytes:
    try:
        return b64decode(fields[key], validate=True)
    except ValueError:
        raise ScramCredentialError(f"its {key} must be base64") from None


def load_scramp() -> ModuleType:
    """Return the module scramp, imported at the first call: that takes 60 ms."""
    import scramp
    from scramp import core

    if hasattr(core, "Salt"):
        core.Salt.MIN_LENGTH = 1
    loaded: ModuleType = scramp
    return loaded
