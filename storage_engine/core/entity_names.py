"""Names of users, client ids and addresses as names of znodes: escaped as in a URL, like Kafka's
Sanitizer does it."""

from urllib.parse import quote, unquote


def escaped(name: str) -> str:
    # Python leaves one character more as it is than Java.
    return quote(name, safe="").replace("~", "%7E")


def unescaped(znode_name: str) -> str | None:
    """None for what no name looks like when it is escaped."""
    try:
        name = unquote(znode_name, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if name and escaped(name) == znode_name else None
