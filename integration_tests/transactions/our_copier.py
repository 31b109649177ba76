"""Copies the numbers of one topic into another in transactions, with our clients; to be killed."""

import sys

from storage_engine.client import Consumer, Producer
from storage_engine.core.errors import HeadraceError

AT_ONCE = 5
ABORT_EVERY = 7


def main() -> None:
    """bootstrap servers, name (of topics, group and transactional id), how many there are: end when
    all are copied."""
    servers, name, count = sys.argv[1:]
    config = {"bootstrap.servers": servers, "max.block.ms": 120_000, "transactional.id": name}
    settings = {
        "bootstrap.servers": servers,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 500,
    }
    turn = 0
    with Producer(config) as producer, Consumer(settings) as consumer:
        producer.init_transactions()
        consumer.subscribe([f"{name}-in"])
        while True:
            records = consumer.poll(200, AT_ONCE)
            partitions = consumer.assignment
            positions = {tp: consumer.position(tp) for tp in partitions}
            if partitions and sum(positions.values()) == int(count) and not records:
                return
            if not records:
                continue
            turn += 1
            try:
                producer.begin_transaction()
                for record in records:
                    producer.send(f"{name}-out", record.value)
                producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                if turn % ABORT_EVERY == 3:
                    raise HeadraceError("for a change")
                producer.commit_transaction()
                print("committed", flush=True)
            except HeadraceError as failure:
                print(f"aborted: {failure}", flush=True)
                producer.abort_transaction()
                for tp, offset in consumer.committed(partitions).items():
                    if tp in consumer.assignment:
                        consumer.seek(tp, offset or 0)


if __name__ == "__main__":
    main()
