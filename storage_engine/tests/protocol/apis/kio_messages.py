"""Random messages of an independent codec, kio, whose tables are made from Kafka's own schemas.

A message is generated along kio's dataclasses, so a field that our tables lack, or have in another
place, cannot stay hidden: kio's bytes would not survive our decoding and encoding.
"""

import dataclasses
import datetime
import functools
import io
import types
import typing
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from storage_engine.protocol.apis.spec import AnyApi

KIO_OLDEST = {0: 3}
"""Kafka 4 dropped the oldest versions, and kio has only what Kafka 4 has: Produce from 3."""


def versions_in_kio(spec: AnyApi) -> range:
    return range(max(spec.min_version, KIO_OLDEST.get(spec.key, 0)), spec.max_version + 1)


def kio_class(api_key: int, version: int, kind: str) -> Any:
    load = load_request_schema if kind == "request" else load_response_schema
    return load(api_key, version)


def encode(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def messages(message_class: Any, pinned: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Messages of a class of kio. Fields named in `pinned`, at any depth, are default or empty."""
    fields = {}
    for field in dataclasses.fields(message_class):
        if field.name not in pinned:
            fields[field.name] = _values(field.type, field.metadata.get("kafka_type"), pinned)
        elif field.default is dataclasses.MISSING:
            is_array = typing.get_origin(field.type) is tuple
            fields[field.name] = (
                st.just(())
                if is_array
                else _values(field.type, field.metadata.get("kafka_type"), pinned)
            )
    return st.builds(message_class, **fields)


def _values(annotation: Any, kafka_type: str | None, pinned: tuple[str, ...]) -> Any:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        inner = next(arg for arg in typing.get_args(annotation) if arg is not type(None))
        return st.none() | _values(inner, kafka_type, pinned)
    if typing.get_origin(annotation) is tuple:
        item = _values(typing.get_args(annotation)[0], kafka_type, pinned)
        return st.lists(item, min_size=1, max_size=3).map(tuple)
    if dataclasses.is_dataclass(annotation):
        return messages(annotation, pinned)
    assert kafka_type is not None, annotation
    return _primitive(kafka_type)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@functools.cache
def _primitive(kafka_type: str) -> st.SearchStrategy[Any]:
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "int8": _integers(8),
        "int16": _integers(16),
        "int32": _integers(32),
        "int64": _integers(64),
        # Not NaN, which is not equal to itself.
        "float64": st.floats(allow_nan=False),
        "string": st.text(st.characters(codec="utf-8"), max_size=150),
        "uuid": st.uuids(),
        "bytes": st.binary(max_size=150),
        "records": st.binary(min_size=1, max_size=300),
        "error_code": st.sampled_from(list(KioErrorCode)),
        "timedelta_i32": _integers(32).map(lambda ms: datetime.timedelta(milliseconds=ms)),
        "timedelta_i64": _integers(48).map(lambda ms: datetime.timedelta(milliseconds=ms)),
        "datetime_i64": st.integers(0, 2**42).map(
            lambda ms: datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
        ),
    }
    return strategies[kafka_type]
