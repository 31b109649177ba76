"""What a command has printed."""


def one_line(capsys) -> str:
    """The last line of its errors."""
    *_, last = capsys.readouterr().err.splitlines()
    assert len(last) < 600
    return str(last)
