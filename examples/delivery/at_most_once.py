"""At most once: commit first, then work. A crash loses records, and repeats none.

For work that must not be repeated and may be missing: a reading of a sensor, a hint on a screen.
The fewer records a poll returns, the fewer a crash can lose.
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
    parser.add_argument("--group", default="at-most-once", help="group.id (default: at-most-once)")
    parser.add_argument("--at-once", type=int, default=10, help="records at risk (default 10)")
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
            records = consumer.poll(1_000, arguments.at_once)
            try:
                # From here on nobody reads them again.
                consumer.commit()
            except CommitRefusedError:
                # They are another member's by now, which works on them.
                continue
            for record in records:
                work(record)


if __name__ == "__main__":
    main()
