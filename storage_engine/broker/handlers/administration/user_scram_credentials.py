"""DescribeUserScramCredentials and AlterUserScramCredentials, served by any broker.

The credentials of one user are changed all or not at all, in one conditional write. When the answer
is sent, this broker applies them, and the others do soon after. The credentials after a change are
computed by pure functions. Source: KIP-554.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import ConfigEntity, ConfigStore, EntityKind
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ports import MetadataStore, ZkReply
from storage_engine.core.printable import printable
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SALT_BYTES_MIN,
    USER_BYTES_MAX,
    ScramCredential,
    ScramCredentialError,
    ScramMechanism,
)
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A credential to remove; `mechanism` is its number in the protocol."""

    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A credential to create or to replace."""

    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


ScramChange = ScramDeletion | ScramUpsertion


def check_user(user: str) -> None:
    """Raises KafkaError for a name that no user can have."""
    if not user:
        raise _unacceptable("the name of a user must not be empty")
    # Names stand in logs.
    if not user.isprintable() or len(user.encode()) > USER_BYTES_MAX:
        raise _unacceptable(
            f"the name of a user must have printable characters, {USER_BYTES_MAX} bytes at most"
        )
    if user in (".", ".."):
        raise _unacceptable("a user can't be named '.' or '..'")


def checked(changes: Sequence[ScramChange]) -> dict[ScramMechanism, ScramCredential | None]:
    """The new credential of each mechanism; None removes it. Raises KafkaError."""
    result: dict[ScramMechanism, ScramCredential | None] = {}
    for change in changes:
        mechanism = ScramMechanism.of_code(change.mechanism)
        if mechanism is None:
            raise KafkaError(
                f"there is no SCRAM mechanism {change.mechanism}, there are"
                f" {', '.join(f'{each.code} ({each.value})' for each in ScramMechanism)}",
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            )
        if mechanism in result:
            raise KafkaError(
                f"{mechanism.value} is changed twice in one request", ErrorCode.DUPLICATE_RESOURCE
            )
        match change:
            case ScramDeletion():
                result[mechanism] = None
            case ScramUpsertion():
                result[mechanism] = _credential(mechanism, change)
    return result


def applied(
    user: str,
    current: Mapping[str, str],
    changes: Mapping[ScramMechanism, ScramCredential | None],
) -> dict[str, str]:
    """The user's settings after the changes. Raises KafkaError where there is nothing to remove."""
    result = dict(current)
    for mechanism, credential in changes.items():
        if credential is not None:
            result[mechanism.value] = credential.format()
        elif result.pop(mechanism.value, None) is None:
            raise KafkaError(
                f"user '{printable(user)}' has no {mechanism.value} credential to remove",
                ErrorCode.RESOURCE_NOT_FOUND,
            )
    return result


def _credential(mechanism: ScramMechanism, change: ScramUpsertion) -> ScramCredential:
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        raise _unacceptable(
            f"{change.iterations} iterations are not possible, but {ITERATIONS_MIN} to"
            f" {ITERATIONS_MAX}"
        )
    if not SALT_BYTES_MIN <= len(change.salt) <= SALT_BYTES_MAX:
        raise _unacceptable(
            f"a salt of {len(change.salt)} bytes is not possible, but of {SALT_BYTES_MIN} to"
            f" {SALT_BYTES_MAX}"
        )
    if len(change.salted_password) != mechanism.key_bytes:
        raise _unacceptable(
            f"a salted password of {mechanism.value} has {mechanism.key_bytes} bytes, not"
            f" {len(change.salted_password)}"
        )
    return ScramCredential.of_salted_password(
        mechanism, change.salted_password, salt=change.salt, iterations=change.iterations
    )


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)


USERS_MAX = 1000
"""The most users that one request may name: each costs reads or writes of ZooKeeper."""

READ_AT_ONCE = 100
"""The number of users read together: other requests get their turn between two such reads."""

_Row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_AlterRow = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialHandlers:
    """Answers DescribeUserScramCredentials and AlterUserScramCredentials."""

    metadata_store: MetadataStore
    config_store: ConfigStore
    config_changes: ConfigChanges
    flows: Flows = field(default_factory=Flows)

    # Describe.

    def describe(
        self,
        call: ApiCall[DescribeUserScramCredentialsResponse],
        request: DescribeUserScramCredentialsRequest,
    ) -> None:
        named = [user.name for user in request.users or ()]
        if len(named) > USERS_MAX:
            error = KafkaError(_too_many(len(named)), ErrorCode.INVALID_REQUEST)
            call.respond(_failed(error))
            return
        self.flows.start(self._describe(named), call.respond)

    def _describe(self, named: Sequence[str]) -> Flow[DescribeUserScramCredentialsResponse]:
        zookeeper = ZookeeperFlows(self.metadata_store)
        users = list(dict.fromkeys(named))
        if not named:
            reply = yield from zookeeper.children(ConfigZNode.USERS)
            if not reply.ok and not reply.is_absent:
                return _failed(_no_answer())
            entities = [
                ConfigEntity.parse(f"{EntityKind.USER.value}/{name}") for name in reply.children
            ]
            users = [each.name for each in entities if each and each.kind is EntityKind.USER]
        times = Counter(named)
        rows = []
        for start in range(0, len(users), READ_AT_ONCE):
            part = {user: ConfigEntity.user(user) for user in users[start : start + READ_AT_ONCE]}
            replies = yield from zookeeper.get_each(each.znode_path for each in part.values())
            for user, entity in part.items():
                row = _row(user, entity, replies[entity.znode_path], times[user])
                if named or row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                    rows.append(row)
        return DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=rows)

    # Alter.

    def alter(
        self,
        call: ApiCall[AlterUserScramCredentialsResponse],
        request: AlterUserScramCredentialsRequest,
    ) -> None:
        changes: dict[str, list[ScramChange]] = defaultdict(list)
        for each in request.deletions:
            changes[each.name].append(ScramDeletion(mechanism=each.mechanism))
        for new in request.upsertions:
            changes[new.name].append(
                ScramUpsertion(
                    mechanism=new.mechanism,
                    iterations=new.iterations,
                    salt=new.salt,
                    salted_password=new.salted_password,
                )
            )
        outcomes: dict[str, KafkaError | None] = {}

        def settle(user: str, outcome: KafkaError | None) -> None:
            outcomes[user] = outcome
            if len(outcomes) == len(changes):
                rows = [_altered(each, outcomes[each]) for each in changes]
                call.respond(AlterUserScramCredentialsResponse(results=rows))

        if not changes:
            call.respond(AlterUserScramCredentialsResponse(results=[]))
        for user, wanted in list(changes.items()):
            try:
                if len(changes) > USERS_MAX:
                    raise KafkaError(_too_many(len(changes)), ErrorCode.INVALID_REQUEST)
                check_user(user)
                credentials = checked(wanted)
            except KafkaError as failure:
                settle(user, failure.as_outcome())
                continue
            self._change(call, user, credentials, partial(settle, user))

    def _change(
        self,
        call: ApiCall[AlterUserScramCredentialsResponse],
        user: str,
        credentials: dict[ScramMechanism, ScramCredential | None],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        entity = ConfigEntity.user(user)

        def on_outcome(failure: KafkaError | None) -> None:
            if failure is not None:
                done(failure)
                return
            log.info(
                "credentials changed of=%s mechanisms=%s by=%s host=%s",
                entity.path,
                ",".join(mechanism.value for mechanism in credentials),
                call.connection.principal,
                call.connection.peer_host,
            )
            self.config_changes.refresh(entity, lambda: done(None))

        def compute(current: Mapping[str, str]) -> dict[str, str]:
            # After the read the client may have lost the right to change it.
            call.check_allowed()
            return applied(user, current, credentials)

        self.config_store.change(
            entity,
            compute,
            on_outcome,
            validate_only=False,
        )


def _row(user: str, entity: ConfigEntity, reply: ZkReply, times: int) -> _Row:
    if times > 1:
        text = f"user '{printable(user)}' is named {times} times"
        return _row_of_error(user, KafkaError(text, ErrorCode.DUPLICATE_RESOURCE))
    if not reply.ok and not reply.is_absent:
        return _row_of_error(user, _no_answer())
    infos = []
    for mechanism, credential in _stored(entity, reply).items():
        info = _Row.CredentialInfo(mechanism=mechanism.code, iterations=credential.iterations)
        infos.append(info)
    if not infos:
        text = f"user '{printable(user)}' has no SCRAM credentials"
        return _row_of_error(user, KafkaError(text, ErrorCode.RESOURCE_NOT_FOUND))
    return _Row(user=user, error_code=0, error_message=None, credential_infos=infos)


def _stored(entity: ConfigEntity, reply: ZkReply) -> dict[ScramMechanism, ScramCredential]:
    found: dict[ScramMechanism, ScramCredential] = {}
    if not reply.ok:
        return found
    try:
        settings = ConfigZNode.decode(entity.znode_path, reply.data).config
        for mechanism in ScramMechanism:
            if mechanism.value in settings:
                found[mechanism] = ScramCredential.parse(mechanism, settings[mechanism.value])
    except (ZnodeFormatError, ScramCredentialError) as failure:
        log.error("credentials of=%s can't be read: %s; make them anew", entity.path, failure)
    return found


def _row_of_error(user: str, error: KafkaError) -> _Row:
    return _Row(user=user, error_code=error.code, error_message=str(error), credential_infos=[])


def _failed(error: KafkaError) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=str(error), results=[]
    )


def _altered(user: str, outcome: KafkaError | None) -> _AlterRow:
    return _AlterRow(
        user=user,
        error_code=0 if outcome is None else outcome.code,
        error_message=None if outcome is None else str(outcome),
    )


def _too_many(count: int) -> str:
    return f"{count} users are more than the {USERS_MAX} possible in one request: send several"


def _no_answer() -> KafkaError:
    return KafkaError("ZooKeeper did not answer", ErrorCode.REQUEST_TIMED_OUT)
