"""Text that others chose, made fit for one line of a log or a table.

Rule: a name from a client, from ZooKeeper or from a disk can neither begin another line, nor move
the cursor of a terminal, nor turn the direction of what stands behind it.
"""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """`text` with everything that is not shown as a character written as an escape: control
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
    """Whether UTF-8 has a form for it: JSON can name single halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
