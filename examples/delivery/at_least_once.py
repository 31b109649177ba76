"""At least once: work first, then commit. A crash repeats records, and loses none.

For most work. Where a repeated record does harm, make the work idempotent: write results under the
record's (topic, partition, offset), so that the second result overwrites the first.
"""

import argparse

from storage_engine.client import CommitRefusedError, Consumer, ConsumerRecord


def work(record: ConsumerRecord) -> None:
    """Your work."""
    print(record.partition, record.offset, (record.value or b"").decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", help="brokers to connect to first, as HOST:PORT[,HOST:PORT…]")
    parser.add_argument("topic", help="topic to read")
    parser.add_argument("--group", default="at-least-once", help="group.id (at-least-once)")
    parser.add_argument("--at-once", type=int, default=10, help="records per commit (default 10)")
    arguments = parser.parse_args()
    config = {
        "bootstrap.servers": arguments.servers,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 2_000,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([arguments.topic])
        while True:
            for record in consumer.poll(1_000, arguments.at_once):
                work(record)
            try:
                consumer.commit()
            except CommitRefusedError as error:
                # Another member has the partitions by now, and does that work again.
                print(f"# {error}", flush=True)


if __name__ == "__main__":
    main()
