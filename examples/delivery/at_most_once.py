"""At most once: commit first, then work. What a crash interrupts is lost, nothing is done twice.

For work that must not be repeated and may be missing: a reading of a sensor, a hint on a screen.
The fewer records a poll takes, the fewer a crash can lose.
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
    parser.add_argument("servers", help="host:port of a broker or more")
    parser.add_argument("topic")
    parser.add_argument("--group", default="at-most-once")
    parser.add_argument("--at-once", type=int, default=10, help="records that a crash may lose")
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
