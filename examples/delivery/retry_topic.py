"""Retry topic and dead letters: a record that fails is tried again later, and holds up no other.

It goes to the end of a retry topic, which the same program reads; after some attempts it goes to a
dead-letter topic, with its origin and the reason: `headrace replay-dead-letters` sends it back. A
record is committed when it is done or in one of these topics: none is lost, a crash repeats some.
"""

import argparse

from storage_engine.client import Consumer, ConsumerRecord, Producer
from storage_engine.protocol.dead_letter_headers import OFFSET, PARTITION, REASON, TOPIC

ATTEMPTS = 3


def work(record: ConsumerRecord) -> None:
    """Your work; raises ValueError for what it can't do now."""
    int(record.value or b"")
    print(record.topic, (record.value or b"").decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", help="brokers to connect to first, as HOST:PORT[,HOST:PORT…]")
    parser.add_argument("topic", help="topic to read; TOPIC-retry and TOPIC-dead must exist too")
    arguments = parser.parse_args()
    retry, dead = f"{arguments.topic}-retry", f"{arguments.topic}-dead"
    brokers = {"bootstrap.servers": arguments.servers}
    config = {
        "group.id": retry,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6_000,
    }
    with Consumer(brokers | config) as consumer, Producer(brokers) as producer:
        consumer.subscribe([arguments.topic, retry])
        while True:
            for record in consumer.poll(1_000, 10):
                try:
                    work(record)
                except ValueError as error:
                    headers: dict[str, bytes | None] = {
                        TOPIC: record.topic.encode(),
                        PARTITION: b"%d" % record.partition,
                        OFFSET: b"%d" % record.offset,
                        **dict(record.headers),  # as they were the first time
                    }
                    attempt = int(headers.get("attempt") or b"0") + 1
                    headers |= {"attempt": b"%d" % attempt, REASON: str(error).encode()}
                    goes_to = retry if attempt < ATTEMPTS else dead
                    producer.send(goes_to, record.value, record.key, headers.items())
            producer.flush()
            consumer.commit()


if __name__ == "__main__":
    main()
