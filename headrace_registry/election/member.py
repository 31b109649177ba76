"""A member of the registries' group: one thread joins, learns who writes, and beats.

Whoever was told to write stays the writer while the group gathers again: that nobody else writes is
not the group's promise but the transactional id's.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from headrace_registry.election.identity import (
    DUPLICATE_URLS,
    PROTOCOL,
    PROTOCOL_TYPE,
    Identity,
    decode_elected,
    decode_identity,
    elect,
    encode_identity,
)
from storage_engine.client.asking import GROUP, ask_coordinator
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.schemas.registry.records import ForeignRecordError
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.heartbeat import API as HEARTBEAT
from storage_engine.protocol.messages.heartbeat import HeartbeatRequest
from storage_engine.protocol.messages.join_group import API as JOIN_GROUP
from storage_engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from storage_engine.protocol.messages.leave_group import API as LEAVE_GROUP
from storage_engine.protocol.messages.leave_group import LeaveGroupRequest
from storage_engine.protocol.messages.sync_group import API as SYNC_GROUP
from storage_engine.protocol.messages.sync_group import SyncGroupRequest

_PAUSE_S = 0.5
_LEAVE_MS = 2_000
_FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

log = logging.getLogger(__name__)

OnRole = Callable[[Identity | None, bool], None]
"""Called with the writer, None when there is none, and whether it is this instance."""


class RegistryMember:
    """The membership of one registry."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        group: str,
        identity: Identity,
        *,
        session_timeout_ms: int,
        on_role: OnRole,
    ) -> None:
        self._new_cluster = cluster
        self._group = group
        self._identity = identity
        self._session_timeout_ms = session_timeout_ms
        self._on_role = on_role
        self._member_id, self._generation = "", -1
        self._writer: Identity | None = None
        self._is_writer = False
        self._ends = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check_now(self) -> None:
        """Beat at once: somebody has fenced this instance."""
        self._wake.set()

    def close(self) -> None:
        """Leave the group, so that others need not wait for the end of the session."""
        self._ends.set()
        self._wake.set()
        if self._member_id:
            try:
                with self._new_cluster() as cluster:
                    self._leave(cluster)
            except HeadraceError as error:
                log.info("leaving the group failed: %s", error)

    def _run(self) -> None:
        with self._new_cluster() as cluster:
            while not self._ends.is_set():
                try:
                    self._join(cluster)
                    self._stay(cluster)
                except (HeadraceError, ForeignRecordError) as error:
                    if not self._ends.is_set():
                        self._failed(error)

    def _failed(self, error: Exception) -> None:
        code = error.code if isinstance(error, KafkaError) else None
        if code in _FORGOTTEN:
            self._member_id = ""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        log.info("the membership of group '%s' ended: %s", self._group, error)
        self._told(None, is_writer=False)
        self._ends.wait(_PAUSE_S)

    def _told(self, writer: Identity | None, *, is_writer: bool) -> None:
        if (writer, is_writer) != (self._writer, self._is_writer):
            log.info("the writer is %s", "unknown" if writer is None else writer.url)
        self._writer, self._is_writer = writer, is_writer
        self._on_role(writer, is_writer)

    # --- requests ---

    def _join(self, cluster: Cluster) -> None:
        joined = self._ask_join(cluster)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        row = SyncGroupRequest.SyncGroupRequestAssignment
        assignments = []
        if joined.leader == joined.member_id:
            elected = elect(
                {each.member_id: decode_identity(bytes(each.metadata)) for each in joined.members}
            ).encode()
            assignments = [
                row(member_id=each.member_id, assignment=elected) for each in joined.members
            ]
        answer = self._ask(
            cluster,
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
            lambda response: response.error_code,
        )
        found = decode_elected(bytes(answer.assignment))
        if found.error == DUPLICATE_URLS:
            log.error(
                "two registries of group '%s' have the same address, so that nothing can be "
                "forwarded to them; give --advertise",
                self._group,
            )
        self._told(found.writer, is_writer=found.member_id == self._member_id)

    def _ask_join(self, cluster: Cluster) -> JoinGroupResponse:
        """A first member id comes with an error, and counts at the second try."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        given: list[str] = []

        def error_of(response: JoinGroupResponse) -> int:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                given.append(response.member_id)
            return int(response.error_code)

        while True:
            identity = replace(self._identity, is_writer=self._is_writer)
            message = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._session_timeout_ms,
                member_id=given.pop() if given else self._member_id,
                group_instance_id=None,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol(name=PROTOCOL, metadata=encode_identity(identity))],
                reason=None,
            )
            try:
                return self._ask(cluster, JOIN_GROUP, message, error_of)
            except KafkaError as error:
                if error.code is not ErrorCode.MEMBER_ID_REQUIRED:
                    raise

    def _stay(self, cluster: Cluster) -> None:
        """Beat until the group gathers again, which is an error of a heartbeat."""
        while not self._ends.is_set():
            self._wake.wait(self._session_timeout_ms / 3000)
            self._wake.clear()
            if self._ends.is_set():
                return
            message = HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
            )
            self._ask(
                cluster,
                HEARTBEAT,
                message,
                lambda response: response.error_code,
                # A coordinator that hangs is noticed while the session lasts.
                self._session_timeout_ms // 2,
            )
            self._told(self._writer, is_writer=self._is_writer)

    def _leave(self, cluster: Cluster) -> None:
        row = LeaveGroupRequest.MemberIdentity(
            member_id=self._member_id, group_instance_id=None, reason=None
        )
        message = LeaveGroupRequest(group_id=self._group, member_id=self._member_id, members=[row])
        self._ask(cluster, LEAVE_GROUP, message, lambda response: response.error_code, _LEAVE_MS)

    def _ask(
        self,
        cluster: Cluster,
        spec: ApiSpec[Req, Resp],
        message: Req,
        code_of: Callable[[Resp], int],
        deadline_ms: int | None = None,
    ) -> Resp:
        def error_of(response: Resp) -> KafkaError | None:
            code = ErrorCode.of(code_of(response))
            if code is ErrorCode.NONE:
                return None
            return KafkaError(f"{spec.name} of group '{self._group}': {code.meaning}", code)

        _, answer = ask_coordinator(
            cluster,
            GROUP,
            self._group,
            spec,
            message,
            error_of,
            deadline_ms=deadline_ms,
        )
        return answer
