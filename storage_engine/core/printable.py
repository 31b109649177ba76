"""Escapes text of foreign origin for one line of a log or a table.

A name from a client, from ZooKeeper or from a disk can neither begin another line, nor move the
cursor of a terminal, nor change the direction of the text after it.

Names of users, client ids and addresses as names of znodes: escaped as in a URL, like Kafka's
Sanitizer does it.
"""

from urllib.parse import quote, unquote

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Return `text` with an escape in place of every character that is not shown as one: control
    characters, line and paragraph separators, marks of direction, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_text(text: str) -> bool:
    """Return True when UTF-8 can encode the text: JSON can contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(name: str) -> str:
    # Python leaves one character more as it is than Java.
    return quote(name, safe="").replace("~", "%7E")


def unescaped(znode_name: str) -> str | None:
    """Return the name; None for a text that `escaped` makes of no name."""
    try:
        name = unquote(znode_name, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if name and escaped(name) == znode_name else None
