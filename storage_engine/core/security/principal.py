"""The principal of a request, in Kafka's form: `User:alice`.

`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

    RULE:pattern/replacement/[LU]    the pattern fits the whole subject; $1 is its first group
    DEFAULT                          the subject as it is

The first rule that fits counts; L and U make the name lower or upper case. When none fits, the
client is refused.

Source: KIP-371.
"""

import re
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name; the name of a TLS client is the subject of its certificate."""

    name: str
    kind: str = USER

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Principal":
        """Parse kind:name; ConfigError names the setting `key` for any other text."""
        kind, colon, name = text.strip().partition(":")
        if not (colon and kind and name):
            raise ConfigError(f"{key}={text}: must be kind:name, for example User:alice")
        return cls(name=name, kind=kind)


ANONYMOUS = Principal("ANONYMOUS")
"""The principal of all clients of a listener without authentication."""


_KEY = "ssl.principal.mapping.rules"
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)",
    re.DOTALL,
)
_GROUP = re.compile(r"\\(.)|\$(\d)")


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None

        def part(found: re.Match[str]) -> str:
            return found[1] or match[int(found[2])] or ""

        name = _GROUP.sub(part, self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


_DEFAULT = _Rule(re.compile(r"(.*)", re.DOTALL), "$1", "")


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """The rules of `ssl.principal.mapping.rules`, in their order."""

    _rules: tuple[_Rule, ...] = (_DEFAULT,)

    def name_of(self, subject: str) -> str | None:
        """Return the principal's name; None when no rule fits, or the result is empty."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name or None
        return None

    @classmethod
    def parse(cls, text: str) -> "PrincipalMapping":
        """Parse the setting; ConfigError for a text that is no list of rules."""
        rules = []
        position = 0
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(
                    f"{_KEY}={text[position:]}: must be DEFAULT or RULE:pattern/replacement/ with L"
                    " or U behind it, separated by commas"
                )
            rules.append(_DEFAULT if match["default"] else _parsed(match))
            position = match.end()
        return cls(tuple(rules)) if rules else cls()


def _parsed(match: re.Match[str]) -> _Rule:
    try:
        pattern = re.compile(match["pattern"].replace("\\/", "/"))
    except re.error as error:
        raise ConfigError(f"{_KEY}: the pattern {match['pattern']} is none: {error}") from None
    replacement = match["replacement"]
    highest = max((int(found[2]) for found in _GROUP.finditer(replacement) if found[2]), default=0)
    if highest > pattern.groups:
        raise ConfigError(
            f"{_KEY}: the replacement {replacement} names ${highest}, but the pattern"
            f" {match['pattern']} has {pattern.groups} groups"
        )
    return _Rule(pattern, replacement, match["case"])
