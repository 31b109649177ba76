"""An exception in the client's own code ends one operation."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.zookeeper.call_window import CallWindow, PendingCall


def call(name: str, replies: list[Any], **how: Any) -> PendingCall:
    class Result:
        exception = None
        value = name

        def rawlink(self, on_result: Callable[[Any], None]) -> None:
            on_result(self)

    return PendingCall(
        **{
            "name": name,
            "path": f"/{name}",
            "send": Result,
            "decode": lambda value: value,
            "on_reply": lambda reply: replies.append((name, reply)),
            **how,
        }
    )


@pytest.mark.parametrize("part", ["send", "decode"])
def test_an_operation_that_fails_in_the_client_is_unknown_and_holds_up_no_other(part, caplog):
    def fail(*_args: object) -> Any:
        raise ValueError("on purpose")

    posted: list[Callable[[], None]] = []
    window = CallWindow(posted.append, SimulatedLoop(), lambda _sent: None)
    replies: list[Any] = []
    for number in range(300):
        window.submit(call(f"bad{number}", replies, **{part: fail}))
    window.submit(call("good", replies))
    for work in posted:
        work()
    assert len(replies) == 301
    assert ("good", "good") in replies
    assert any(record.exc_info for record in caplog.records)
