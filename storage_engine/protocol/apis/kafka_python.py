"""The less frequent APIs, with the message classes and the encoder of kafka-python 3.

kafka-python makes classes out of Kafka's own schema files, with the fields as attributes in
snake_case. A message is built with keyword arguments. The structs within are attributes of its
class and take no version, which the encoder brings; what is left out has the schema's default:

    CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=0)])

kafka-python's decoder is not used. It trusts its input (truncated strings, negative counts and
left-over bytes pass, and tagged fields cost quadratic time), so messages are read here, along its
schema, with the bounds of `wire.Reader`. The import takes about 0.2 s, so only the modules of these
APIs do it, and they are imported on first use. Source: KIP-482, KIP-893.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import kafka.protocol

from storage_engine.core.errors import InvalidRequestError
from storage_engine.protocol.apis.registry import APIS
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Buffer, Decode
from storage_engine.protocol.apis.wire import Reader, decode_leniently, decode_with

Read = Callable[[Reader], Any]

UNAUTHORIZED_OPERATIONS_BIT = 31
"""The only bit of a set of authorized operations that was not requested."""


def kafka_python_api(
    key: int, request_class: Any, response_class: Any, *, is_lenient: bool = False
) -> AnyApi:
    """Return the spec of an API in the registry's table whose messages are classes of kafka-python.
    `is_lenient`: a client is known to send bytes too many with its requests."""
    entry = APIS[key]
    first_flexible = entry.first_flexible_version
    return ApiSpec(
        key=key,
        name=entry.name,
        min_version=entry.versions.min_version,
        max_version=entry.versions.max_version,
        first_flexible_version=first_flexible,
        decode_request=_decoder(
            f"{entry.name} request",
            request_class,
            first_flexible,
            decode_leniently if is_lenient else decode_with,
        ),
        encode_request=_encode,
        decode_response=_decoder(
            f"{entry.name} response", response_class, first_flexible, decode_leniently
        ),
        encode_response=_encode,
    )


def request_classes() -> dict[str, Any]:
    """Return the classes of all requests in kafka-python, by their names."""
    modules = pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol.")
    return {
        name: each
        for module in modules
        for name, each in vars(importlib.import_module(module.name)).items()
        if isinstance(each, type) and name.endswith("Request") and hasattr(each, "fields")
    }


def _encode(version: int, message: Any) -> list[Buffer]:
    encoded: bytes = message.encode(version=version)
    return [encoded]


def _decoder(what: str, message_class: Any, first_flexible: int | None, whole: Any) -> Decode[Any]:
    @functools.cache
    def reader_for(version: int, flexible: bool) -> Read:
        fields = message_class.fields.values()
        return _StructReader(message_class, fields, version, flexible).read

    def decode(version: int, body: memoryview) -> Any:
        flexible = first_flexible is not None and version >= first_flexible
        read = reader_for(version, flexible)
        return whole(f"{what} of version {version}", body, flexible, read)

    return decode


class _StructReader:
    """Reads one struct in one version."""

    def __init__(self, struct_class: Any, fields: Any, version: int, flexible: bool) -> None:
        self._struct_class = struct_class
        self._version = version
        self._untagged: list[tuple[str, Read]] = []
        self._tagged: dict[int, tuple[str, Read]] = {}
        self.least_bytes = 1 if flexible else 0
        for field in fields:
            if not field.for_version_q(version):
                continue
            read, least_bytes = _field_reader(field, version, flexible)
            if field.tagged_field_q(version):
                self._tagged[field.tag] = (field.name, read)
            else:
                self._untagged.append((field.name, read))
                self.least_bytes += least_bytes

    def read(self, reader: Reader) -> Any:
        values = {name: read(reader) for name, read in self._untagged}
        for tag, data in reader.tags().items():
            known = self._tagged.get(tag)
            if known is not None:
                name, read = known
                value_reader = Reader(data, flexible=True)
                values[name] = read(value_reader)
                value_reader.finish()
        return self._struct_class(version=self._version, **values)


def _field_reader(field: Any, version: int, flexible: bool) -> tuple[Read, int]:
    """Return the reader of a field, and the fewest bytes that the field takes."""
    nullable = field.nullable_for_version_q(version)
    if field.is_struct_array():
        item = _StructReader(field.data_class, field.fields.values(), version, flexible)
        return _array_reader(item.read, item.least_bytes, nullable), 1 if flexible else 4
    if field.is_struct():
        struct = _StructReader(field.data_class, field.fields.values(), version, flexible)
        if nullable:
            return _nullable(struct.read), 1
        return struct.read, struct.least_bytes
    if field.is_array():
        read, least_bytes = _field_reader(field.array_of, version, flexible)
        return _array_reader(read, least_bytes, nullable), 1 if flexible else 4
    if field.type_str == "string":
        return (Reader.nullable_string if nullable else Reader.string), 1 if flexible else 2
    if field.type_str == "bytes":
        return (_read_nullable_bytes if nullable else _read_bytes), 1 if flexible else 4
    return _FIXED[field.type_str]


def _array_reader(read_item: Read, item_bytes: int, nullable: bool) -> Read:
    def read(reader: Reader) -> list[Any] | None:
        count = reader.nullable_count(item_bytes) if nullable else reader.count(item_bytes)
        return None if count < 0 else [read_item(reader) for _ in range(count)]

    return read


def _nullable(read_struct: Read) -> Read:
    """Return the reader of a struct behind a marker byte: -1 for null, 1 for a value (KIP-893)."""

    def read(reader: Reader) -> Any:
        marker = reader.int8()
        if marker not in (-1, 1):
            raise InvalidRequestError(f"a nullable struct starts with {marker}, not with -1 or 1")
        return None if marker == -1 else read_struct(reader)

    return read


def _read_nullable_bytes(reader: Reader) -> bytes | None:
    """Return a copy, not a slice: these values are small, and outlive the frame."""
    data = reader.records()
    return None if data is None else bytes(data)


def _read_bytes(reader: Reader) -> bytes:
    data = _read_nullable_bytes(reader)
    if data is None:
        raise InvalidRequestError("bytes are null where none may be")
    return data


def _read_authorized_operations(reader: Reader) -> set[int] | None:
    """Return the bits that are set; None when the operations were not requested."""
    bits = reader.int32() & 0xFFFF_FFFF
    operations = {bit for bit in range(32) if bits >> bit & 1}
    return None if operations == {UNAUTHORIZED_OPERATIONS_BIT} else operations


_FIXED: dict[str, tuple[Read, int]] = {
    "bool": (Reader.boolean, 1),
    "int8": (Reader.int8, 1),
    "int16": (Reader.int16, 2),
    "int32": (Reader.int32, 4),
    "int64": (Reader.int64, 8),
    "float64": (Reader.float64, 8),
    "uuid": (Reader.uuid, 16),
    "bitfield": (_read_authorized_operations, 4),
}
