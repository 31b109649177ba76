"""A program that reads a topic in a group that meets in ZooKeeper, commits now and then, and tells
what it has read; to be killed."""

import contextlib
import sys
import time

from storage_engine.client import CommitRefusedError, ConsumerConnector

COMMIT_EVERY = 10
WORK_S = 0.02
"""What a message takes: a member that is to be killed must not be done before."""


def main() -> None:
    """ZooKeeper, group, topic, session timeout in ms, consumer.death.proof."""
    zookeeper, group, topic, session_ms, proof = sys.argv[1:]
    config = {
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": session_ms,
        "consumer.death.proof": proof,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        print("joined", flush=True)
        for count, message in enumerate(stream, 1):
            print(message.partition, message.offset, flush=True)
            time.sleep(WORK_S)
            if count % COMMIT_EVERY == 0:
                # On a machine that is too busy for its session somebody else reads them again.
                with contextlib.suppress(CommitRefusedError):
                    connector.commit_offsets()
                    print("committed", flush=True)


if __name__ == "__main__":
    main()
