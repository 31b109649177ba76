"""Fetch: consumers and followers read; both may wait for data.

Bytes that are not in the page cache are fetched from the disk first, by `cold_reads`.

Rule: below here every request names all its partitions; what a session leaves out is added and
taken away by `fetch_sessions`, ids of topics by `fetched_topics`. Source: R-REP2, R-NET2, KIP-227,
KIP-516.
"""

from storage_engine.broker.delayed_fetch import DelayedFetch, must_answer
from storage_engine.broker.fetch_reads import FetchRead
from storage_engine.broker.fetched_topics import nodes_of, with_ids, with_names
from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.fetch import (
    FIRST_WITH_NODES,
    FIRST_WITH_TOPIC_IDS,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import NO_SESSION_EPOCH


def handle(context: BrokerContext, call: Call, request: FetchRequest) -> None:
    if request.replica_id >= 0 and is_hurry(request):
        context.follower_waits.end(request.replica_id)
        call.respond(FetchResponse([]))
        return
    fetch = context.fetch_sessions.begin(request)
    if isinstance(fetch, FetchResponse):
        call.respond(fetch)
        return
    asked = request = fetch.request
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    if by_id:
        try:
            request = with_names(context.metadata, asked)
        except ValueError:
            call.respond(FetchResponse((), int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)))
            return
    reader = context.reader
    reader.note_progress(request)
    read = reader.read(request)

    def gone() -> bool:
        return call.exchange.closed

    def send(result: FetchRead) -> None:
        reader.note_sent(request, result.partitions)
        answers = with_ids(asked, result.partitions) if by_id else result.partitions
        response = fetch.response(answers)
        if call.version >= FIRST_WITH_NODES and result.failed:
            response = response._replace(nodes=nodes_of(context.metadata, response.partitions))
        call.respond(response)

    def respond(result: FetchRead) -> None:
        context.cold_reads.answer(request, result, send, gone)

    if must_answer(request, read):
        respond(read)
    else:
        waiting = DelayedFetch(
            request,
            reader=reader,
            replicas=context.replicas,
            scheduler=context.scheduler,
            respond=respond,
            gone=gone,
        )
        if request.replica_id >= 0:
            context.follower_waits.add(request.replica_id, waiting)


def is_hurry(request: FetchRequest) -> bool:
    """A fetch of nothing, outside of any session: see FollowerWaits."""
    return request.session_epoch == NO_SESSION_EPOCH and not request.partitions
