"""From a frame to its handler.

Rule: a frame that can't be decoded, or an API or version that is not served, costs its own
connection and nothing else; an ApiVersions of an unknown version has an answer of its own
(KIP-511). Source: R-NET1, R-NET3.
"""

import logging
from functools import partial
from typing import Any

from storage_engine.broker.handlers.administration import (
    alter_configs,
    alter_replica_log_dirs,
    describe_cluster,
    describe_configs,
    elections,
    log_dirs,
    metadata,
    reassignments,
    topics,
)
from storage_engine.broker.handlers.context import BrokerContext, Call, Handler
from storage_engine.broker.handlers.controller import control, controlled_shutdown
from storage_engine.broker.handlers.groups import (
    find_coordinator,
    group_admin,
    group_members,
    group_offsets,
    group_transactions,
)
from storage_engine.broker.handlers.records import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from storage_engine.broker.handlers.transactions import (
    add_partitions_to_txn,
    batches,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    write_txn_markers,
)
from storage_engine.broker.requests.long_work import (
    INLINE_BYTES,
    INLINE_ITEMS,
    REQUEST_ITEMS_MAX,
    Steps,
)
from storage_engine.core.errors import InvalidRequestError
from storage_engine.net.connection import Connection
from storage_engine.net.limits import SCRATCH_BYTES
from storage_engine.protocol.apis import (
    abort_members,
    api_versions,
    batch_heartbeat,
    commit_batch,
    join_batch,
)
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FIRST_WITHOUT_REPLICA_ID
from storage_engine.protocol.apis.registry import (
    API_VERSIONS_KEY,
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    name_of,
    spec_for,
)
from storage_engine.protocol.apis.spec import ApiSpec
from storage_engine.protocol.apis.wire import MAX_ITEMS, LongMessageError, decode_short
from storage_engine.protocol.framing import RequestHeader, parse_request_header

log = logging.getLogger(__name__)


def _api_versions(_context: BrokerContext, call: Call, _request: Any) -> None:
    call.respond(_ADVERTISED)


HANDLERS: dict[int, Handler] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    4: control.leader_and_isr,
    5: control.stop_replica,
    6: control.update_metadata,
    7: controlled_shutdown.handle,
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    10: find_coordinator.handle,
    11: group_members.join_group,
    12: group_members.heartbeat,
    13: group_members.leave_group,
    14: group_members.sync_group,
    15: group_admin.describe,
    16: group_admin.list_all,
    API_VERSIONS_KEY: _api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    24: add_partitions_to_txn.handle,
    25: group_transactions.add_offsets_to_txn,
    26: end_txn.end_txn,
    27: write_txn_markers.handle,
    28: group_transactions.txn_offset_commit,
    32: describe_configs.handle,
    33: alter_configs.alter_configs,
    34: alter_replica_log_dirs.handle,
    35: log_dirs.handle,
    37: topics.create_partitions,
    42: group_admin.delete,
    43: elections.handle,
    44: alter_configs.incremental_alter_configs,
    45: reassignments.alter,
    46: reassignments.list_ongoing,
    47: group_offsets.offset_delete,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    65: describe_transactions.describe,
    66: describe_transactions.list_all,
    join_batch.KEY: batches.join_batch,
    commit_batch.KEY: batches.commit_batch,
    batch_heartbeat.KEY: batches.heartbeat,
    abort_members.KEY: batches.abort_members,
}
"""What this broker serves."""

_EPOCH_PER_TRANSACTION = api_versions.Feature("transaction.version", 2, 2)
"""Clients that know it enlist partitions by writing to them, and end each transaction under the
next epoch (KIP-890); the others do as they always did. No other level can be chosen."""

_ADVERTISED = api_versions.ApiVersionsResponse(
    api_keys=api_versions.ApiVersionsResponse.of(
        {
            key: versions
            for key, versions in {**SERVED_RANGES, **OWN_RANGES}.items()
            if key in HANDLERS
        }
    ).api_keys,
    supported_features=[_EPOCH_PER_TRANSACTION],
    finalized_features=[_EPOCH_PER_TRANSACTION],
    finalized_features_epoch=0,
)

assert set(HANDLERS) <= set(SERVED_RANGES) | set(INTERNAL_RANGES) | set(OWN_RANGES)


class Dispatcher:
    """The `handle` of a broker's server."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        # All codecs now: an import in the middle of serving would hold the event loop.
        self._table: dict[int, tuple[ApiSpec, Handler]] = {
            key: (spec_for(key), handler) for key, handler in HANDLERS.items()
        }
        self._produce = self._table[0][0]

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        try:
            header, body = parse_request_header(frame)
            entry = self._table.get(header.api_key)
            if entry is None:
                connection.close(f"{name_of(header.api_key)} is not served")
                return
            spec, handler = entry
            version = header.api_version
            if not spec.min_version <= version <= spec.max_version:
                self._answer_unknown_version(connection, spec, header.correlation_id)
                return
            if len(body) > INLINE_BYTES and spec is not self._produce:
                raise LongMessageError
            request = decode_short(spec.decode_request, version, body, INLINE_ITEMS)
        except InvalidRequestError as failure:
            connection.close(str(failure))
            return
        except LongMessageError:
            call = self._call(connection, spec, header)
            if len(body) < SCRATCH_BYTES:
                # The frame's memory is the next one's when this call ends.
                body = memoryview(bytearray(body))
            begin = partial(self._decode_first, call, handler, body)
            is_urgent = _is_of_a_broker(spec, header.api_version, body)
            self._context.long_work.run_later(call, begin, is_urgent=is_urgent)
            return
        call = self._call(connection, spec, header)
        steps = handler(self._context, call, request)
        if steps is not None:
            call.run(steps)

    def _call(self, connection: Connection, spec: ApiSpec, header: RequestHeader) -> Call:
        return Call(
            spec,
            header.api_version,
            header.correlation_id,
            connection,
            connection.begin(),
            header.client_id or "",
            self._context.long_work,
        )

    def _decode_first(self, call: Call, handler: Handler, body: memoryview) -> Steps:
        """The work of a request with more items than are read in one turn."""
        most = MAX_ITEMS if call.spec.key in INTERNAL_RANGES else REQUEST_ITEMS_MAX
        try:
            request = yield partial(
                decode_short, call.spec.decode_request, call.version, body, most
            )
        except InvalidRequestError as failure:
            call.connection.close(str(failure))
            return
        except LongMessageError:
            call.connection.close(
                f"a {call.spec.name} request has more than {most} items: send several"
            )
            return
        steps = handler(self._context, call, request)
        if steps is not None:
            yield from steps

    def _answer_unknown_version(
        self, connection: Connection, spec: ApiSpec, correlation_id: int
    ) -> None:
        call = Call(spec, 0, correlation_id, connection, connection.begin())
        call.respond(api_versions.unsupported_version_response())


def _is_of_a_broker(spec: ApiSpec, version: int, body: memoryview) -> bool:
    """Whether the cluster waits for it: an order of the controller, or a follower's fetch, which
    begins with the id of the replica."""
    if spec.key in INTERNAL_RANGES:
        return True
    if spec is not FETCH or version >= FIRST_WITHOUT_REPLICA_ID:
        return False
    return int.from_bytes(body[:4], signed=True) >= 0
