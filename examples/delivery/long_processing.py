"""Long work: a thread does it, while the consumer is paused and goes on polling.

A member that does not poll for max.poll.interval.ms is removed from its group, and its partitions
go to others, which begin the same work. Polling while the partitions are paused returns no records
and keeps the membership. Records that a crash interrupts are delivered again (at least once).
"""

import argparse
import time
from concurrent.futures import Future, ThreadPoolExecutor

from storage_engine.client import Consumer, ConsumerRecord, TopicPartition


def work(record: ConsumerRecord, seconds: float) -> None:
    """Your work; it may take longer than max.poll.interval.ms."""
    print("# begins", record.offset, flush=True)
    time.sleep(seconds)
    print(record.partition, record.offset, (record.value or b"").decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", help="brokers to connect to first, as HOST:PORT[,HOST:PORT…]")
    parser.add_argument("topic", help="topic to read")
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds per record (600)")
    parser.add_argument("--max-poll-interval-ms", type=int, default=300_000, help="default 300000")
    arguments = parser.parse_args()
    config = {
        "bootstrap.servers": arguments.servers,
        "group.id": "long-processing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": arguments.max_poll_interval_ms,
        "session.timeout.ms": 6_000,
    }
    done: Future[None] | None = None
    with Consumer(config) as consumer, ThreadPoolExecutor(1) as pool:

        def assigned(partitions: list[TopicPartition]) -> None:
            print("# has", *partitions, flush=True)
            if done is not None:
                consumer.pause(partitions)

        consumer.subscribe([arguments.topic], on_assigned=assigned)
        while True:
            for record in consumer.poll(1_000, 1):
                done = pool.submit(work, record, arguments.seconds)
                consumer.pause(consumer.assignment)
                while not done.done():
                    consumer.poll(100)
                done = done.result()
                consumer.resume(consumer.assignment)
                consumer.commit()


if __name__ == "__main__":
    main()
