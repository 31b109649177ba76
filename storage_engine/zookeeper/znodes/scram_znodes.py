"""The znode of what brokers need for SCRAM beside the users' credentials."""

import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import ClassVar

from storage_engine.zookeeper.znode_json import (
    ZnodeFormatError,
    decode_object,
    encode_object,
    str_field,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDecoyZNode:
    """/scram_decoy_key: a secret of the brokers, from which the salts of users that do not exist
    are made, so that all brokers give the same. Kafka has no such node."""

    PATH: ClassVar[str] = "/scram_decoy_key"
    KEY_BYTES: ClassVar[int] = 32

    key: bytes = field(repr=False)

    def encode(self) -> bytes:
        return encode_object({"version": 1, "key": b64encode(self.key).decode()})

    @classmethod
    def decode(cls, data: bytes) -> "ScramDecoyZNode":
        text = str_field(cls.PATH, decode_object(cls.PATH, data), "key")
        try:
            key = b64decode(text, validate=True)
        except ValueError:
            key = b""
        if len(key) != cls.KEY_BYTES:
            raise ZnodeFormatError(
                f"znode {cls.PATH}: 'key' must be {cls.KEY_BYTES} bytes in base64"
            )
        return cls(key=key)

    @classmethod
    def random(cls) -> "ScramDecoyZNode":
        return cls(key=secrets.token_bytes(cls.KEY_BYTES))
