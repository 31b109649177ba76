"""Programs that stand for those of a machine."""

from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent


def program(path: Path, text: str) -> Path:
    """Writes an executable of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
