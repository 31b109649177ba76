"""Exactly once: one transaction has the offsets that are read and the records that are written.

For programs that turn records of one topic into records of another. A consumer of the output with
isolation.level=read_committed reads each result once, whatever process dies. Effects elsewhere (a
mail, a table) are not in the transaction. Each instance needs a transactional.id of its own, the
same after a restart: the new instance aborts the transaction that the old one has left open.
"""

import argparse

from storage_engine.client import Consumer, ConsumerRecord, HeadraceError, Producer


def transform(record: ConsumerRecord) -> bytes:
    """Your transformation."""
    return (record.value or b"").upper()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", help="brokers to connect to first, as HOST:PORT[,HOST:PORT…]")
    parser.add_argument("source", help="topic to read")
    parser.add_argument("target", help="topic to write")
    parser.add_argument("--name", default="exactly-once", help="group.id and transactional.id")
    arguments = parser.parse_args()
    settings = {
        "bootstrap.servers": arguments.servers,
        "group.id": arguments.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 2_000,
    }
    config = {"bootstrap.servers": arguments.servers, "transactional.id": arguments.name}
    with Producer(config) as producer, Consumer(settings) as consumer:
        producer.init_transactions()
        consumer.subscribe([arguments.source])
        while True:
            if records := consumer.poll(1_000, 10):
                producer.begin_transaction()
                try:
                    for record in records:
                        producer.send(arguments.target, transform(record), record.key)
                    positions = {tp: consumer.position(tp) for tp in consumer.assignment}
                    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                    producer.commit_transaction()
                except HeadraceError:
                    # Nothing has happened. Started again, it goes on from the last commit.
                    producer.abort_transaction()
                    raise


if __name__ == "__main__":
    main()
