"""The form of options that name columns: `id,fare`. A name with a comma in it stands in
backquotes, as in Spark's DDL.
"""

import re

from connector.options.given_options import bad_option

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*?))\s*(?:,|$)")


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """The names in their order, each once, upper and lower case aside. OptionError where there is
    none, or for a backquote that does not end."""
    names: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _NAME.match(text, position)
        if found is None:
            raise bad_option(option, "names separated by commas, such as id,`a, b`", text)
        name = (found[1] or "").replace("``", "`") or found[2] or ""
        if name:
            names.setdefault(name.lower(), name)
        position = found.end()
    if not names:
        raise bad_option(option, "one name or more, separated by commas", text)
    return tuple(names.values())
