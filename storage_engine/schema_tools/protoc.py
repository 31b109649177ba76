"""Compiles texts of `.proto` files by protoc, in a child process that is bounded in processor time,
memory, output and time.

It sees a folder that holds the text and those that it may import, and the files of
`google/protobuf`; nothing else can be imported.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from storage_engine.core.printable import printable
from storage_engine.core.schemas.errors import InvalidSchemaError

CPU_SECONDS = 5
WAIT_SECONDS = 30
MEMORY_BYTES = 1024 * 1024 * 1024
OUTPUT_BYTES = 16 * 1024 * 1024

_CHILD = Path(__file__).with_name("protoc_child.py")
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
_MAX_NAME = 200


def compile_proto(text: str, others: Mapping[str, str]) -> bytes:
    """Return the bytes of a `FileDescriptorSet`: the file of the text comes last, and is behind all
    that it imports. `others` are the texts that may be imported, by the names of the imports.
    InvalidSchemaError says what protoc says."""
    for name in others:
        _check_name(name)
    own = "schema.proto"
    while own in others:
        own = f"_{own}"
    with tempfile.TemporaryDirectory(prefix="headrace-protoc-") as folder:
        root = Path(folder)
        given = root / "given"
        for name, other in (*others.items(), (own, text)):
            path = given / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(other, encoding="utf-8", newline="")
        output = root / "output"
        _run(given, own, output)
        return output.read_bytes()


def _check_name(name: str) -> None:
    parts = name.split("/")
    if (
        len(name) > _MAX_NAME
        or _NAME.fullmatch(name) is None
        or not {".", ".."}.isdisjoint(parts)
        or not name.endswith(".proto")
    ):
        raise InvalidSchemaError(
            f"'{printable(name[:80])}' is no name of a file that can be imported: use letters, "
            "digits, '_', '-', '.' and '/', and end it with '.proto'"
        )


def _run(given: Path, own: str, output: Path) -> None:
    limits = [str(each) for each in (CPU_SECONDS, MEMORY_BYTES, OUTPUT_BYTES)]
    command = [sys.executable, "-I", str(_CHILD), *limits]
    try:
        ended = subprocess.run(
            [*command, "-I.", "--include_imports", f"--descriptor_set_out={output}", own],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WAIT_SECONDS,
            cwd=given,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InvalidSchemaError(
            f"the Protobuf schema could not be compiled within {WAIT_SECONDS} s"
        ) from None
    if ended.returncode == 0 and output.exists():
        return
    said = ended.stderr[:10_000].decode("utf-8", "replace").strip()
    if "No module named 'grpc_tools'" in said:
        raise InvalidSchemaError(
            "Protobuf schemas need the package grpcio-tools: install headrace[registry]"
        )
    lines = [each for each in said.splitlines() if each.startswith(f"{own}:")]
    if ended.returncode < 0 or not lines:
        raise InvalidSchemaError("the Protobuf schema is too large or too deep to be compiled")
    line = lines[0].removeprefix(f"{own}:")
    raise InvalidSchemaError(f"the Protobuf schema is not valid: {printable(line.strip()[:300])}")
