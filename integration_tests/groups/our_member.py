"""Our consumer with the face of the other clients' members; as a program, one to kill."""

import contextlib
import sys
from typing import Any

from storage_engine.client import CommitRefusedError, Consumer


class OurMember:
    """See `group_members.GroupMember`."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.rebalances = 0
        """How often it was given partitions."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        if given.get("group.protocol") != "consumer":
            given.setdefault("heartbeat.interval.ms", 500)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **given,
            }
        )
        self.consumer.subscribe([topic], on_assigned=self._assigned)

    def _assigned(self, _partitions: Any) -> None:
        self.rebalances += 1

    def poll(self) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self.consumer.poll(50)]

    def owned(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


def main() -> None:
    """bootstrap servers, group, topic, session timeout in ms (none: a member of the consumer
    protocol): commit what is read, until killed."""
    servers, group, topic, *session_ms = sys.argv[1:]
    settings = {"session_timeout_ms": session_ms[0]} if session_ms else {}
    protocol = "classic" if session_ms else "consumer"
    member = OurMember(servers, group, topic, group_protocol=protocol, **settings)
    while True:
        for partition, offset in member.poll():
            # In one piece: what reads it may kill this program at any moment.
            print(f"{partition} {offset}\n", end="", flush=True)
        # On a machine that is too busy for heartbeats somebody else reads them again.
        with contextlib.suppress(CommitRefusedError):
            member.commit()


if __name__ == "__main__":
    main()
