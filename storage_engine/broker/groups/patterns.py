"""The regular expressions to which members of consumer groups subscribe: their syntax, and the
topics that they match.

The syntax is RE2's, as in Kafka, and the library, too: it takes time in proportion to a name's
length, whatever the expression is. What it would compile for long is refused: an expression that
is long, that becomes a large program, that has many of Unicode's classes, or one of those without
regard to case. Names of topics are ASCII, so expressions are read as Latin-1.

An expression matches whole names, and only those that the client may describe: what a client may
not see tells it nothing by being matched. Source: KIP-848.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import re2

from storage_engine.broker.access.access_control import AccessControl
from storage_engine.core.groups.consumer.events import RequestingClient, ResolvePattern
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.printable import printable
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.core.security.principal import Principal

log = logging.getLogger(__name__)

PATTERN_MAX_BYTES = 2_048
"""The longest expression: it is compiled in the turn of its request, in at most 3 ms."""

PROGRAM_MAX = 2_500
"""The most instructions of a compiled expression: at worst a name takes 4 µs for each."""

UNICODE_CLASSES_MAX = 10
"""The most classes such as \\pL: each may take 0.1 ms to compile, and 20 ms without regard to case.
"""

MEMORY_BYTES = 1 << 18
"""The memory of a compiled expression with the states that it has reached; re2 keeps 128 of them.
"""

CHECKED_MAX = 1_000
"""The expressions whose verdict is kept: members send theirs again whenever they join."""

NAMES_A_PIECE = 200
"""The names that are matched between two looks at the clock, and whose rights are checked in one
turn: usually a millisecond."""

RESOLVE_MAX_MS = 5_000
"""How long one expression is matched: others wait meanwhile."""

_UNICODE_CLASS = re.compile(r"\\[pP]")
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


@lru_cache(CHECKED_MAX)
def pattern_problem(pattern: str) -> str | None:
    """Return why groups can't subscribe to the expression; None when they can."""
    if len(pattern.encode()) > PATTERN_MAX_BYTES:
        return f"a regular expression has at most {PATTERN_MAX_BYTES} bytes"
    shown = printable(pattern)
    try:
        encoded = pattern.encode("latin-1")
    except UnicodeEncodeError:
        return f"'{shown}' has characters that no topic's name has"
    classes = len(_UNICODE_CLASS.findall(pattern))
    if classes > UNICODE_CLASSES_MAX:
        return f"'{shown}' has more than {UNICODE_CLASSES_MAX} Unicode classes: name the letters"
    if classes and _IGNORES_CASE.search(pattern):
        return f"'{shown}' has a Unicode class without regard to case: name the letters"
    try:
        program = re2.compile(encoded, _options()).programsize
    except re2.error as error:
        return f"'{shown}' is no regular expression of RE2's syntax: {_reason(error)}"
    if program > PROGRAM_MAX:
        return f"'{shown}' is too complex: {program} steps, at most {PROGRAM_MAX} are possible"
    return None


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = MEMORY_BYTES
    options.never_capture = True
    # The library would write to stderr.
    options.log_errors = False
    return options


def _reason(error: Exception) -> str:
    (reason,) = error.args or ("unknown",)
    return printable(reason.decode("latin-1") if isinstance(reason, bytes) else str(reason))


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that the expression matches as a whole. May run in any thread."""
    compiled = re2.compile(pattern.encode("latin-1"), _options())
    return [name for name in names if compiled.fullmatch(name.encode())]


@dataclass(slots=True)
class _Client:
    """A client as access rules see it."""

    principal: Principal
    peer_host: str


class DescribableTopics:
    """Says which topics a client may describe; all of them where there is no authorizer."""

    def __init__(self, access: AccessControl | None) -> None:
        self._access = access

    @property
    def are_there_rules(self) -> bool:
        return self._access is not None

    @property
    def revision(self) -> int:
        """A number that changes whenever a client may have gained or lost a topic."""
        return 0 if self._access is None else self._access.authorizer.revision

    def among(self, client: RequestingClient, names: Sequence[str]) -> list[str]:
        if self._access is None:
            return list(names)
        if client.principal is None:
            return []
        asking = _Client(client.principal, client.host.removeprefix("/"))
        operation, kind = AclOperation.DESCRIBE, ResourceType.TOPIC
        return [name for name in names if self._access.allows(asking, operation, kind, name)]


OnResolved = Callable[[frozenset[str] | None], None]


@dataclass(slots=True)
class _Resolution:
    """An expression that is being matched."""

    wanted: ResolvePattern
    on_resolved: OnResolved
    names: deque[str]
    """The names that have not been matched yet."""
    until_ms: int
    found: deque[str] = field(default_factory=deque)
    """The names that match, and whose rights have not been checked yet."""
    shown: set[str] = field(default_factory=set)


def _piece(of: deque[str]) -> list[str]:
    return [of.popleft() for _ in range(min(len(of), NAMES_A_PIECE))]


class TopicPatterns:
    """Finds the topics of expressions, one expression after the other."""

    def __init__(
        self,
        background: Background,
        scheduler: Scheduler,
        clock: Clock,
        *,
        topics: Callable[[], Iterable[str]],
        describable: DescribableTopics,
    ) -> None:
        """`topics`: returns the names of all topics."""
        self._background = background
        self._scheduler = scheduler
        self._clock = clock
        self._topics = topics
        self._describable = describable
        self._waiting: deque[tuple[ResolvePattern, OnResolved]] = deque()
        """As many as there are expressions in groups: each asks again after its answer alone."""
        self._is_busy = False

    def resolve(self, wanted: ResolvePattern, on_resolved: OnResolved) -> None:
        """Call `on_resolved` later with the names; None: they could not be found in time."""
        self._waiting.append((wanted, on_resolved))
        if not self._is_busy:
            self._is_busy = True
            self._scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        if not self._waiting:
            self._is_busy = False
            return
        wanted, on_resolved = self._waiting.popleft()
        names = deque(self._topics())
        problem = pattern_problem(wanted.pattern)
        if problem is not None:
            # Another version has stored it, and has taken it.
            log.warning("pattern of group %r matches nothing: %s", wanted.group_id, problem)
            names.clear()
        until_ms = self._clock.monotonic_ms() + RESOLVE_MAX_MS
        self._match(_Resolution(wanted, on_resolved, names, until_ms))

    def _match(self, task: _Resolution) -> None:
        if not task.names:
            self._check(task)
        elif self._clock.monotonic_ms() > task.until_ms:
            log.warning(
                "pattern of group %r not resolved: %d names are left after %d ms",
                task.wanted.group_id, len(task.names), RESOLVE_MAX_MS,
            )  # fmt: skip
            self._end(task, None)
        else:
            self._background.submit(
                partial(matching, task.wanted.pattern, _piece(task.names)),
                lambda found: self._matched(task, found),
                lambda error: self._failed(task, error),
            )

    def _matched(self, task: _Resolution, found: list[str]) -> None:
        task.found += found
        self._match(task)

    def _failed(self, task: _Resolution, error: Exception) -> None:
        log.error("pattern of group %r not resolved: %s", task.wanted.group_id, error)
        self._end(task, None)

    def _check(self, task: _Resolution) -> None:
        """Keep the names that the client may describe, some in each turn."""
        task.shown.update(self._describable.among(task.wanted.client, _piece(task.found)))
        if task.found:
            self._scheduler.call_soon(lambda: self._check(task))
        else:
            self._end(task, frozenset(task.shown))

    def _end(self, task: _Resolution, names: frozenset[str] | None) -> None:
        self._scheduler.call_soon(self._begin)
        task.on_resolved(names)
