"""Questions about the cluster that a broker gets before the controller has told it anything.

Rule: they wait for that, some seconds at most. An empty list of brokers is no answer: librdkafka
takes it for the whole cluster, and does not ask again for minutes.
"""

from collections.abc import Callable

from storage_engine.broker.handlers.context import BrokerContext
from storage_engine.broker.replicas.purgatory import RequestDeadline

MAX_WAIT_MS = 5_000
"""Below what clients wait for an answer, and far above what a controller takes."""


def when_told(context: BrokerContext, answer: Callable[[], None]) -> None:
    """Answer with the first UpdateMetadata, or with nothing known when the time is over."""
    if context.metadata.told:
        answer()
        return

    def told() -> None:
        if deadline.finish():
            answer()

    def expire() -> None:
        context.metadata.wait_no_longer(told)
        answer()

    deadline = RequestDeadline(context.scheduler, MAX_WAIT_MS, expire)
    context.metadata.on_first_update(told)
