"""Writes storage_engine/protocol/messages, the classes of messages, from Kafka's schemas.

    python .ci/messages.py [--check]

The schemas are those of kafka-python. The registry has the served versions, and a field that none
of them has is left out. `--check` writes nothing, and fails if a file would change.
"""

import argparse
import importlib.resources
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from storage_engine.protocol.apis.registry import APIS, GENERATED, ApiEntry  # noqa: E402

FOLDER = ROOT / "storage_engine" / "protocol" / "messages"
NEWEST = 32_767
TYPES = {
    "bool": ("boolean", "bool"),
    "int8": ("int8", "int"),
    "int16": ("int16", "int"),
    "int32": ("int32", "int"),
    "int64": ("int64", "int"),
    "float64": ("float64", "float"),
    "uuid": ("uuid", "UUID"),
    "string": ("string", "str"),
    "bytes": ("binary", "bytes"),
}
"""Schema type -> function in `fields`, type in Python."""
DEFAULTS = {
    "InitProducerIdRequest": {"TransactionalId": "null", "TransactionTimeoutMs": 60_000},
    "InitProducerIdResponse": {"ProducerId": -1, "ProducerEpoch": -1},
    "SaslAuthenticateResponse": {"ErrorMessage": "null"},
}
"""Defaults for fields where Kafka's would be wrong for a client that leaves them out."""
LENIENT = {51}
"""librdkafka leaves bytes behind AlterUserScramCredentials requests."""
COMMENT = re.compile(r"^\s*//(.*)$", re.MULTILINE)


class Module:
    """The text of one API's module."""

    def __init__(self, key: int, entry: ApiEntry) -> None:
        self._entry = entry
        self._used: set[str] = set()
        classes = [line for kind in ("Request", "Response") for line in self._message(kind)]
        name = entry.name
        lenient = ", is_lenient=True" if key in LENIENT else ""
        body = [*classes, f"API = api({key}, {name}Request, {name}Response{lenient})"]
        imports = ["from dataclasses import dataclass"]
        if any("Sequence[" in line for line in classes):
            imports.insert(0, "from collections.abc import Sequence")
        if "uuid" in self._used:
            imports.append("from uuid import UUID")
        if self._used:
            used = ", ".join(sorted(self._used))
            imports += ["", f"from storage_engine.protocol.apis.fields import ({used})"]
        imports += ["from storage_engine.protocol.apis.struct_codec import api", ""]
        head = f'"""{name}, versions {entry.versions}; written by `.ci/messages.py`."""\n\n'
        self.text = head + "\n".join([*imports, *body]) + "\n"

    def _message(self, kind: str) -> Iterator[str]:
        file = importlib.resources.files("kafka.protocol.schemas.resources")
        text = (file / f"{self._entry.name}{kind}.json").read_text(encoding="utf-8")
        schema = json.loads(COMMENT.sub("", text))
        for common in reversed(schema.get("commonStructs", ())):
            yield from self._struct(common["name"], common["fields"], "", [])
        notes = COMMENT.findall(text.split("{", 1)[1].split('"fields"')[0])
        for each in schema["fields"]:
            each.update(
                default=DEFAULTS.get(schema["name"], {}).get(each["name"], each.get("default", ""))
            )
        yield from self._struct(schema["name"], schema["fields"], "", notes)

    def _struct(
        self, name: str, all_fields: list[Any], indent: str, notes: list[str]
    ) -> Iterator[str]:
        low, high = self._entry.versions
        fields = [
            each
            for each in all_fields
            if (versions := _versions(each["versions"]))[0] <= high and versions[1] >= low
        ]
        yield from (f"# {line}" for note in notes for line in textwrap.wrap(note.strip(), 98))
        yield f"{indent}@dataclass(slots=True, kw_only=True)"
        yield f"{indent}class {name}:"
        inner = indent + "    "
        if not fields:
            yield f'{inner}"""It has no fields."""'
        for each in fields:
            if "fields" in each:
                yield from self._struct(_item(each), each["fields"], inner, [])
        for each in fields:
            yield f"{inner}{_snake(each['name'])}: {self._field(each)}"
        yield ""

    def _field(self, field: dict[str, Any]) -> str:
        """Return the type and the default of a field."""
        item = _item(field)
        is_array = field["type"].startswith("[]")
        function, python = TYPES.get(item, ("struct", item))
        low, high = self._entry.versions
        first, last = _versions(field["versions"])
        arguments = [] if item in TYPES else [item]
        if last < high:
            arguments += [str(first), str(last)]
        elif first > low:
            arguments.append(str(first))
        if is_array:
            function, python = f"{function}s", f"Sequence[{python}]"
        default = str(field.get("default", ""))
        null_from = _versions(field.get("nullableVersions", "none"))[0]
        if null_from <= high:
            function, python = f"nullable_{function}", f"{python} | None"
            if null_from > max(first, low):
                arguments.append(f"null_from={null_from}")
            if is_array and default == "null":
                arguments.append("is_null=True")
            elif item == "string" and not is_array and default == "null":
                arguments.append("default=None")
        elif default not in ("", "0", "false", "False", "null"):
            is_number = item not in ("bool", "string")
            value = int(default, 0) if is_number else default == "true" or default
            arguments.append(f"default={value!r}")
        if "tag" in field:
            arguments.append(f"tag={field['tag']}")
        self._used.add(function)
        return f"{python} = {function}({', '.join(arguments)})"


def _item(field: dict[str, Any]) -> str:
    item: str = field["type"].removeprefix("[]")
    return item


def _versions(text: str) -> tuple[int, int]:
    if text == "none":
        return NEWEST, NEWEST
    if text.endswith("+"):
        return int(text[:-1]), NEWEST
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def modules() -> dict[Path, str]:
    """Return the files with their text, as the formatter leaves it."""
    texts = {FOLDER / f"{APIS[key].module}.py": Module(key, APIS[key]).text for key in GENERATED}
    return {path: _formatted(path, text) for path, text in sorted(texts.items())}


def _formatted(path: Path, text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        name = ["--stdin-filename", str(path), "-"]
        done = subprocess.run([*ruff, *command, *name], input=text, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        text = done.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    changed = 0
    for path, text in modules().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed += 1
            print(path.relative_to(ROOT))
            if not is_check:
                path.write_text(text, encoding="utf-8")
    return int(is_check and changed > 0)


if __name__ == "__main__":
    sys.exit(main())
