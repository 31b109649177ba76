"""Sends each request in each version as each principal, and says what should not have been."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from integration_tests.security.scan import (
    requests_of_administrators,
    requests_of_brokers,
    requests_of_clients,
)
from integration_tests.security.scan.planted import MARKER, built
from integration_tests.security.scan.probe import Answer, Probe, frame, log_in_frames
from integration_tests.security.scan.scanned_cluster import (
    ADMIN,
    CLOSED,
    NOBODY_SPECIAL,
    OPEN,
    ScannedCluster,
)
from integration_tests.security.scan.scanned_request import Scanned
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.registry import name_of
from storage_engine.tests.broker.guards.api_cases import Right
from storage_engine.tests.broker.guards.guarded_cluster import REFUSALS, codes_in

REQUESTS = [
    *requests_of_clients.REQUESTS,
    *requests_of_administrators.REQUESTS,
    *requests_of_brokers.REQUESTS,
]
BEFORE_LOG_IN = (17, 18, 36)
"""SaslHandshake, ApiVersions and SaslAuthenticate."""
_API_VERSIONS = 18


class Finding(NamedTuple):
    """An answer that should not be."""

    who: str
    request: str
    version: int
    what: str

    def __str__(self) -> str:
        return f"{self.who}, {self.request}, version {self.version}: {self.what}"


def users() -> dict[str, Sequence[Right]]:
    """For each request a user with its rights, and for each of these one that lacks it."""
    made: dict[str, Sequence[Right]] = {}
    for number, scanned in enumerate(REQUESTS):
        made[_all(number)] = scanned.rights
        for lacking, right in enumerate(scanned.rights):
            made[_without(number, lacking)] = [r for r in scanned.rights if r != right]
    return made


def _all(number: int) -> str:
    return f"all-{number}"


def _without(number: int, lacking: int) -> str:
    return f"lacks-{number}-{lacking}"


@dataclass(frozen=True, slots=True)
class Scan:
    """Of one cluster."""

    cluster: ScannedCluster

    def of_those_who_may_not(self) -> list[Finding]:
        return [
            *self._of_strangers(),
            *self._as_one("nobody in particular", lambda: Probe(self.cluster.address(OPEN))),
            *self._as_one("carol", lambda: self.cluster.logged_in(NOBODY_SPECIAL)),
            *self._of_those_who_lack_a_right(),
        ]

    def _of_strangers(self) -> Iterator[Finding]:
        """Who does not log in, or not rightly, gets not one byte in answer to the request."""
        handshake, wrong = log_in_frames(ADMIN, "wrong")
        for scanned, version in _every():
            if scanned.key in BEFORE_LOG_IN:
                continue
            request = frame(
                scanned.key, version, scanned.request(self.cluster.planted), number=4_711
            )
            for who, before in (
                ("no log-in", ()),
                ("half a log-in", (handshake,)),
                ("a wrong password", (handshake, wrong)),
            ):
                with Probe(self.cluster.address(CLOSED)) as probe:
                    received = probe.bytes_until_closed(*before, request)
                if (4_711).to_bytes(4) in received or MARKER.encode() in received:
                    yield Finding(who, str(scanned), version, "answered")

    def _as_one(self, who: str, connected: Callable[[], Probe]) -> Iterator[Finding]:
        """Somebody without any right."""
        probe = connected()
        for scanned, version in _every():
            answer = (
                probe.ask(scanned.key, version, scanned.request(self.cluster.planted))
                if (scanned.is_answered)
                else None
            )
            if answer is None:
                probe.close()
                if scanned.is_answered:
                    yield Finding(who, str(scanned), version, "closed")
                else:
                    yield from self._unanswered(who, scanned, version, connected())
                probe = connected()
                continue
            allowed = {scanned.refusal(right) for right in scanned.rights}
            yield from _problems(who, scanned, version, answer, allowed)
        probe.close()

    def _unanswered(
        self, who: str, scanned: Scanned, version: int, probe: Probe
    ) -> Iterator[Finding]:
        """A request without an answer is refused by the end of its connection."""
        request = frame(scanned.key, version, scanned.request(self.cluster.planted))
        with probe:
            if probe.ask(_API_VERSIONS, 0, built(_API_VERSIONS), after=request) is not None:
                yield Finding(who, str(scanned), version, "not closed")

    def _of_those_who_lack_a_right(self) -> Iterator[Finding]:
        for number, scanned in enumerate(REQUESTS):
            for lacking, right in enumerate(scanned.rights):
                if len(scanned.rights) == 1 or not scanned.is_answered:
                    # As carol.
                    continue
                user = _without(number, lacking)
                who = f"who lacks {right[0]} on {right[1]} {right[2]}"
                with self.cluster.logged_in(user) as probe:
                    for version in scanned.versions:
                        request = scanned.request(self.cluster.planted)
                        answer = probe.ask(scanned.key, version, request)
                        expected = {scanned.refusal(right)}
                        yield from _problems(who, scanned, version, answer, expected)

    def of_those_who_may(
        self, *, note_change: Callable[[Scanned, Callable[[], None]], None]
    ) -> list[Finding]:
        """Each request by who has exactly its rights. `note_change` sends it."""
        findings: list[Finding] = []
        for number, scanned in enumerate(REQUESTS):
            with self.cluster.logged_in(_all(number)) as probe:

                def send(scanned: Scanned = scanned, probe: Probe = probe) -> None:
                    findings.extend(self._allowed("who may", scanned, probe))

                note_change(scanned, send)
        return findings

    def of_the_super_user(self) -> tuple[list[Finding], set[str]]:
        """Also the requests whose answers had something to hide."""
        findings: list[Finding] = []
        shown: set[str] = set()
        for scanned in REQUESTS:
            with self.cluster.logged_in(ADMIN) as probe:
                findings.extend(self._allowed("the super user", scanned, probe, shown))
        return findings, shown

    def _allowed(
        self, who: str, scanned: Scanned, probe: Probe, shown: set[str] | None = None
    ) -> Iterator[Finding]:
        for version in scanned.versions:
            request = scanned.request(self.cluster.planted)
            if not scanned.is_answered:
                before = frame(scanned.key, version, request)
                answer = probe.ask(_API_VERSIONS, 0, built(_API_VERSIONS), after=before)
            else:
                answer = probe.ask(scanned.key, version, request)
            if answer is None:
                yield Finding(who, str(scanned), version, "closed")
                return
            refusals = codes_in(answer.message) & REFUSALS
            if refusals:
                yield Finding(who, str(scanned), version, f"refused: {refusals}")
            if shown is not None and MARKER.encode() in answer.raw:
                shown.add(str(scanned))


def _every() -> Iterator[tuple[Scanned, int]]:
    for scanned in REQUESTS:
        for version in scanned.versions:
            yield scanned, version


def _problems(
    who: str, scanned: Scanned, version: int, answer: Answer | None, expected: set[ErrorCode]
) -> Iterator[Finding]:
    """What is wrong with an answer to who may not."""
    if answer is None:
        yield Finding(who, str(scanned), version, "closed")
        return
    refusals = codes_in(answer.message) & REFUSALS
    if scanned.rights and scanned.is_told and not refusals:
        yield Finding(who, str(scanned), version, f"allowed: {codes_in(answer.message)}")
    elif not refusals <= expected:
        yield Finding(who, str(scanned), version, f"refused otherwise: {refusals}")
    if MARKER.encode() in answer.raw:
        yield Finding(who, str(scanned), version, "shows what is not for it")


def names(keys: set[int]) -> set[str]:
    return {name_of(key) for key in keys}
