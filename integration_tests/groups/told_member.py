"""A member of a group that is our consumer, in a process to be killed or paused: it does what it is
told by a line, and tells by a line of JSON what came of it.

    poll             once: what it read, and what it heard of its partitions
    commit OFFSET    for all that it owned when it last polled: whether it was refused
"""

import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from integration_tests.forks.forked import popen
from storage_engine.client import CommitRefusedError, Consumer, TopicPartition


class ToldMember:
    """The process, and how it is told. Use it in a `with` block, which kills it."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, session_ms: int) -> None:
        command = [sys.executable, "-P", "-m", "integration_tests.groups.told_member"]
        arguments = [bootstrap_servers, group, topic, str(session_ms)]
        self.process = popen(
            command + arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._owned: set[int] = set()
        self.rebalances = 0
        """How often it was given partitions."""
        self.heard: list[str] = []
        """assigned, revoked, lost: in their order."""

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def poll(self) -> list[tuple[int, int]]:
        """See `group_members.GroupMember`."""
        self.tell("poll")
        answer = self.answer()
        self.heard += answer["heard"]
        self.rebalances += answer["heard"].count("assigned")
        self._owned = set(answer["owned"])
        return [(partition, offset) for partition, offset in answer["read"]]

    def owned(self) -> set[int]:
        """As the last poll left it."""
        return self._owned

    def commit(self) -> None:
        raise NotImplementedError("tell it the offset")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def main() -> None:
    """bootstrap servers, group, topic, session timeout in ms: do what is told, to the end."""
    servers, group, topic, session_ms = sys.argv[1:]
    heard: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 500,
            "session.timeout.ms": session_ms,
        }
    )
    consumer.subscribe(
        [topic],
        on_assigned=lambda _: heard.append("assigned"),
        on_revoked=lambda _: heard.append("revoked"),
        on_lost=lambda _: heard.append("lost"),
    )
    owned: list[TopicPartition] = []
    for line in sys.stdin:
        match line.split():
            case ["poll"]:
                read = [(record.partition, record.offset) for record in consumer.poll(50)]
                owned = sorted(consumer.assignment)
                numbers = [tp.partition for tp in owned]
                print(json.dumps({"read": read, "owned": numbers, "heard": heard}), flush=True)
                heard.clear()
            case ["commit", offset]:
                try:
                    consumer.commit(dict.fromkeys(owned, int(offset)))
                    refused = None
                except CommitRefusedError as error:
                    refused = str(error)
                print(json.dumps({"refused": refused}), flush=True)


if __name__ == "__main__":
    main()
