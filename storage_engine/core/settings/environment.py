"""Settings of a broker in variables of its environment, for containers.

`HEADRACE_ZOOKEEPER_CONNECT` stands for `zookeeper.connect`: `_` is a dot, `__` an underscore, `___`
a hyphen, and capital letters stand for small ones. Source: KIP-975.
"""

import re
from collections.abc import Iterable, Mapping

PREFIX = "HEADRACE_"

_SEPARATORS = {"_": ".", "__": "_", "___": "-"}
_UNDERSCORES = re.compile(r"_{1,3}")


def setting_variables(environment: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The variables that stand for settings, each with the name of its setting. `known`: names of
    settings, a few of which have capital letters; others are taken as they are."""
    cased = {name.lower(): name for name in known}
    named = {
        variable: _setting_named(variable.removeprefix(PREFIX))
        for variable in sorted(environment)
        if variable.startswith(PREFIX)
    }
    return {variable: cased.get(name, name) for variable, name in named.items()}


def _setting_named(text: str) -> str:
    return _UNDERSCORES.sub(lambda found: _SEPARATORS[found[0]], text).lower()
