"""The code of a document, to be run as a reader would run it."""

import ast
import re
from pathlib import Path

from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema

ROOT = Path(__file__).parents[2]
TRIPS = "id BIGINT, at TIMESTAMP, fare DOUBLE, tags ARRAY<STRING>, who STRUCT<name: STRING>"
TYPED_CONFIG = {SCHEMA_SETTING: new_schema(parse_ddl(TRIPS), []).to_json()}
"""The settings of the documents' topic `trips`."""


def blocks(document: str, language: str) -> list[str]:
    """The blocks of code in a document that are of this language, in their order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


class _OneRound(ast.NodeTransformer):
    """Ends each loop over records after its first round: it would wait for the next record."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body.append(ast.Break())
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AsyncFor:
        self.generic_visit(node)
        node.body.append(ast.Break())
        return node


def script_of(block: str, *, endless: bool = False) -> str:
    """The block as a script of its own, with a loop for what awaits. `endless`: its loops end only
    with the program."""
    tree = ast.parse(block)
    if endless:
        tree = ast.fix_missing_locations(_OneRound().visit(tree))
    code = ast.unparse(tree)
    if not any(isinstance(node, ast.AsyncWith | ast.Await) for node in ast.walk(tree)):
        return code
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    return f"import asyncio\nasync def main():\n{lines}\nasyncio.run(main())"
