"""Flights as any client of Kafka's reads them: as JSON records, though the topic holds columns.

The client is librdkafka, which knows nothing of schemas.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message, TopicPartition

from examples.flights import proof
from examples.flights.proof import Comparison
from examples.flights.schemas import FLIGHTS
from storage_engine.client.producer.partition_choice import partition_for_key

TOPIC = "flights"

MOST_RECORDS = 1_000
"""The most records read, the first of one airport; all of the topic would show no more."""

_SHOWN = 2
_SECONDS = 60.0


@dataclass(slots=True)
class JsonReading:
    """The records that a client of Kafka's has read."""

    records: list[tuple[bytes, bytes]] = field(default_factory=list)
    """The key and value of each record."""

    def compared(self, flights: pa.Table) -> Comparison:
        """Compare the records with the first flights of the same airport in the source."""
        found = proof.parse(pa.array([value for _, value in self.records]), FLIGHTS.arrow)
        return proof.compare(first_flights(flights), found, proof.FLIGHT_KEY)

    def rows(self) -> Iterator[tuple[str, str]]:
        """The first records, as rows of a table."""
        for key, value in self.records[:_SHOWN]:
            yield key.decode(), value.decode()


def first_flights(flights: pa.Table) -> pa.Table:
    """The first flights of the airport that has the very first, in the columns of the topic."""
    chosen = flights.filter(pc.equal(flights["origin"], flights["origin"][0]))
    return chosen.select(FLIGHTS.arrow.names).slice(0, MOST_RECORDS)


def read_json(config: Mapping[str, str], flights: pa.Table, partitions: int) -> JsonReading:
    """Reads as many records as `first_flights` has rows, from the partition to which a client of
    Kafka's would send the airport's name as key."""
    wanted = len(first_flights(flights))
    partition = partition_for_key(flights["origin"][0].as_py().encode(), partitions)
    consumer = Consumer({**config, "group.id": "unused", "enable.auto.commit": False})
    deadline = time.monotonic() + _SECONDS
    reading = JsonReading()
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        while len(reading.records) < wanted:
            if time.monotonic() > deadline:
                read = len(reading.records)
                raise TimeoutError(f"librdkafka read only {read:,} of {wanted:,} flights")
            for message in consumer.consume(wanted - len(reading.records), timeout=0.5):
                _take(reading, message)
    finally:
        consumer.close()
    return reading


def _take(reading: JsonReading, message: Message) -> None:
    # An error is that of a broker it could not reach; it tries again.
    if message.error() is None:
        # What has no value is missing from the flights that are compared.
        reading.records.append((message.key() or b"", message.value() or b""))
