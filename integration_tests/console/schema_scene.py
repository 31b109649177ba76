"""Topics whose records serializers of a schema registry have written, and some that are damaged."""

import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import DEADLINE_S, create_topic
from storage_engine.schema_tools.protoc import compile_proto
from storage_engine.tools.local.local_cluster import LocalCluster

LARGE_NUMBER = 9_007_199_254_740_993
"""A double makes it …992."""
UNKNOWN_ID = 4711
PLACE = {
    "type": "record",
    "name": "Place",
    "namespace": "com.example",
    "fields": [{"name": "city", "type": "string"}],
}
FIELDS = [
    {"name": "id", "type": "long", "doc": "of the ride, not of the car"},
    {"name": "begins", "type": "com.example.Place"},
    {
        "name": "fare",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    },
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
TIP = {"name": "tip", "type": ["null", "string", "double"], "default": None}
ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "items": {"type": "array"}},
}
CAR = """
syntax = "proto3";
package cars;
message Ignored { string text = 1; }
message Car {
  string plate = 1;
  message Seat { uint32 row = 1; }
  repeated Seat seats = 2;
}
"""


def ride_schema(*more: dict[str, Any]) -> str:
    fields = [*FIELDS, *more]
    return json.dumps(
        {"type": "record", "name": "Ride", "namespace": "com.example", "fields": fields}
    )


class SchemaScene:
    """Subjects of all languages, and topics with records by them."""

    def __init__(self, cluster: LocalCluster, registry: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.registry = SchemaRegistryClient({"url": registry})
        self._producer = Producer({**settings_for(self.servers), "log_level": 0})
        for topic in ("rides", "cars", "orders"):
            create_topic(cluster, topic, replication_factor=1)

    def play(self) -> None:
        self._write_rides()
        self._write_cars()
        self._write_orders()
        assert self._producer.flush(DEADLINE_S) == 0

    def _write_rides(self) -> None:
        """Two versions, of which one has a field more; then what nobody can read."""
        self.registry.register_schema("com.example.Place", Schema(json.dumps(PLACE), "AVRO"))
        self.registry.register_schema("shop/eu", Schema(json.dumps(PLACE), "AVRO"))
        places = [SchemaReference("com.example.Place", "com.example.Place", 1)]
        for number, more in enumerate(((), (TIP,))):
            serialize = AvroSerializer(
                self.registry, Schema(ride_schema(*more), "AVRO", references=places)
            )
            context = SerializationContext("rides", MessageField.VALUE)
            self._send(
                "rides", (serialize(each, context) for each in _rides(10 * number, bool(more)))
            )
        rides = self.registry.get_latest_version("rides-value")
        head = b"\0" + rides.schema_id.to_bytes(4, "big")
        self._send("rides", [head + b"\2", b"\0" + UNKNOWN_ID.to_bytes(4, "big") + b"?", b"plain"])

    def _write_cars(self) -> None:
        file = FileDescriptorSet.FromString(compile_proto(CAR, {})).file[-1]
        file.name = "cars.proto"
        pool = DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        kind: Any = GetMessageClass(pool.FindMessageTypeByName("cars.Car"))
        serialize = ProtobufSerializer(kind, self.registry, {"use.deprecated.format": False})
        context = SerializationContext("cars", MessageField.VALUE)
        car = kind(plate="RO-MA 1", seats=[{"row": 1}, {"row": 2}])
        self._send("cars", [serialize(car, context)])

    def _write_orders(self) -> None:
        serialize = JSONSerializer(json.dumps(ORDER), self.registry)
        context = SerializationContext("orders", MessageField.VALUE)
        self._send("orders", [serialize({"id": LARGE_NUMBER, "items": ["a"]}, context)])

    def _send(self, topic: str, values: Iterable[bytes | None]) -> None:
        for number, value in enumerate(values):
            self._producer.produce(topic, value, key=f"{topic}-{number}".encode())


def _rides(first: int, has_tip: bool) -> Iterable[dict[str, Any]]:
    for number in range(first, first + 3):
        ride = {
            "id": LARGE_NUMBER + number,
            "begins": {"city": ("Rome", "Oslo", "Bonn")[number % 3]},
            "fare": Decimal("7.10") + number,
            "at": dt.datetime(2026, 11, 30, 12, 0, number % 60, tzinfo=dt.UTC),
        }
        yield ride | ({"tip": "<b>coins</b>"} if has_tip else {})
