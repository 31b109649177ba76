"""The way of a change: done here if this registry is the writer, else by the writer.

    writer here?   take over once -> plan with the state -> write -> read back -> answer
    elsewhere?     the request goes on to it as it came, with its log-in
    nobody known?  the next election is waited for

A change that a fenced writer did not write is tried again wherever the writer is. One that may have
been done is tried again only where that changes nothing. Source: R-SR4.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace_registry.election.identity import Identity
from headrace_registry.forwarding import Forwarded, Forwarding, NotDoneError, RawRequest
from headrace_registry.log.follower import Follower
from headrace_registry.log.writer import FencedError, SchemasWriter
from storage_engine.core.schemas.registry.changes import PlannedChange
from storage_engine.core.schemas.registry.records import Json
from storage_engine.core.schemas.registry.registry_error import (
    FORWARDING_FAILED,
    NO_WRITER,
    TIMED_OUT,
    RegistryError,
)
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.net.deadline import Deadline

WRITE_TIMEOUT_MS = 40_000
"""It is longer than a writer's session and an election."""
_FORWARDED_WAIT_MS = 5_000
"""A request that was sent here may have heard of the election first."""
_LOOK_S = 1.0
_SEEN_MS = 2_000

log = logging.getLogger(__name__)
Plan = Callable[[RegistryState], PlannedChange]


class _Role(NamedTuple):
    writer: Identity | None
    is_own: bool


class Writes:
    """The changes of one registry; for any number of threads."""

    def __init__(
        self,
        follower: Follower,
        forwarding: Forwarding,
        take_over: Callable[[], SchemasWriter],
        on_fenced: Callable[[], None],
    ) -> None:
        self._follower = follower
        self._forwarding = forwarding
        self._take_over = take_over
        self._on_fenced = on_fenced
        self._changed = threading.Condition()
        self._role = _Role(None, False)
        self._turn = threading.Lock()
        self._writer: SchemasWriter | None = None

    @property
    def is_writer(self) -> bool:
        """Whether the group says so; whoever writes may find that another has taken over."""
        return self._role.is_own

    def elected(self, writer: Identity | None, is_own: bool) -> None:
        with self._changed:
            self._role = _Role(writer, is_own)
            if not is_own and self._writer is not None:
                # Another term begins with what others have written.
                self._writer.is_usable = False
            self._changed.notify_all()

    def do(self, raw: RawRequest, work: Callable[[], Json]) -> "Json | Forwarded":
        """The answer of `work`, which calls `change`, or that of the writer. RegistryError."""
        deadline = Deadline.after(_FORWARDED_WAIT_MS if raw.is_forwarded else WRITE_TIMEOUT_MS)
        while True:
            role = self._role
            try:
                if role.is_own:
                    return work()
                if role.writer is not None and not raw.is_forwarded:
                    return self._seen_here(self._forwarding.send(raw, role.writer, deadline))
                failure = RegistryError(NO_WRITER, "Leader not known.")
            except FencedError:
                self._fenced(role)
                failure = RegistryError(NO_WRITER, "Leader not known.")
            except NotDoneError as error:
                failure = RegistryError(FORWARDING_FAILED, f"Error while forwarding: {error}")
            self._wait_for_another(role, deadline, failure)

    def _seen_here(self, answer: Forwarded) -> Forwarded:
        """The answer, once this registry has read what it tells of; late is better than never."""
        with contextlib.suppress(RegistryError):
            self._follower.wait_for(answer.position, Deadline.after(_SEEN_MS))
        return answer

    def _wait_for_another(self, role: _Role, deadline: Deadline, failure: RegistryError) -> None:
        if deadline.passed:
            raise failure
        with self._changed:
            self._changed.wait_for(
                lambda: self._role != role, min(_LOOK_S, deadline.left_ms / 1000)
            )

    def _fenced(self, role: _Role) -> None:
        """Believe in nothing until the group has said again who writes."""
        with self._changed:
            if self._role is not role:
                return
            self._role = _Role(None, False)
        log.info("another registry has taken over writing")
        self._on_fenced()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Changes are planned and written one after the other; the state is that of all before."""
        if not self._turn.acquire(timeout=WRITE_TIMEOUT_MS / 1000):
            raise RegistryError(TIMED_OUT, "changes before this one take too long; try again")
        try:
            self._be_writer().wait_until_read()
            yield
        finally:
            self._turn.release()

    def _be_writer(self) -> SchemasWriter:
        if not self._role.is_own:
            raise FencedError("another registry is the writer")
        if self._writer is not None and not self._writer.is_usable:
            self._writer.close()
            self._writer = None
        if self._writer is None:
            self._writer = self._take_over()
            log.info("this registry writes")
        return self._writer

    def change(self, plan: Plan) -> Json:
        """Within a `turn`: write what the plan wants, and return its answer."""
        assert self._writer is not None
        change = self._follower.look(plan)
        if change.records:
            self._writer.write(change.records)
        return change.answer

    def change_alone(self, plan: Plan) -> Json:
        with self.turn():
            return self.change(plan)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
