"""The library scramp, which takes salts of any length here.

It refuses those below twelve bytes since 1.5. RFC 5802 does not, nor does Kafka, so that there are
users with shorter ones.
"""

from types import ModuleType


def load_scramp() -> ModuleType:
    """Imported at the first call: it takes 60 ms."""
    import scramp
    from scramp import core

    if hasattr(core, "Salt"):
        core.Salt.MIN_LENGTH = 1
    return scramp  # type: ignore[no-any-return]
