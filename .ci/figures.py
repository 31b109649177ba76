"""Figures of the code base, to be compared from one release to the next.

    python .ci/figures.py [--json] [ROOT]

Folders with many entries, long files and functions, lines by package, class names that stand
twice in the product, `Any` in ports, citations that lead nowhere, sizes of the documents.
"""

import argparse
import ast
import graphlib
import io
import json
import re
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from pathlib import Path

PRODUCT = (
    "storage_engine",
    "connector",
    "pyspark_headrace",
    "headrace_console",
    "headrace_registry",
    "headrace_lake",
    "simulation",
)
BESIDE = ("benchmarks", "examples", ".ci")
GENERATED = "storage_engine/protocol/messages"
"""Written by .ci/messages.py: its lines are counted apart."""
MOST_ENTRIES = 22
LONG_FILE = 500
LONG_FUNCTION = 60
WIDEST_CELL = 200
PRONOUN = re.compile(r"(?:Of|What|That|Those|Who|Whose)\b")
OUTSIDE = re.compile(
    r"\bdocuments? 00\d|\(00\d\)|\bissues? (?:\d{1,2}\b|\")|\bdecisions? \d+"
    r"|(?<![\w.-])(?:FACTS|INTERFACE|ARCHITECTURE|EXACTLY_ONCE|REQUIREMENTS)\b"
)
"""Citations of texts that the repository does not hold, or by numbers that move."""
OUTSIDE_PARTS = (
    "document 00", "documents 00", "(00", "issue", "decision", "FACTS", "INTERFACE", "ARCHITECTURE",
    "EXACTLY_ONCE", "REQUIREMENTS",
)  # fmt: skip
"""Each such citation contains one of these texts; to look for them takes a tenth of the time."""
REQUIREMENT = re.compile(r"\bR-[A-Z]+\d+")
DOCUMENT = re.compile(r"\bdocs/[\w-]+\.md")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"`([\w-]+(?:/[\w-]+)*\.py|[\w-]+(?:/[\w-]+)+)`")
"""A path in docs/requirements.md."""


def tracked(root: Path) -> list[Path]:
    """Return all files below `root` that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    return [root / name for name in listed.stdout.decode().split("\0") if name]


def words(text: str) -> str:
    """Return the comments and docstrings of a module."""
    found = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    found += [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return "\n".join(found)


def unresolved(root: Path) -> dict[str, list[str]]:
    """Return citations that lead nowhere, by the file that has them."""
    files = [path for path in tracked(root) if path.exists()]
    requirements = (root / "docs" / "requirements.md").read_text(encoding="utf-8")
    known = set(REQUIREMENT.findall(requirements))
    tests = {path.name for path in files if path.name.startswith("test_")}
    found: defaultdict[str, list[str]] = defaultdict(list)

    def lost(text: str) -> list[str]:
        return [
            *(OUTSIDE.findall(text) if any(part in text for part in OUTSIDE_PARTS) else ()),
            *(each for each in REQUIREMENT.findall(text) if each not in known),
            *(each for each in DOCUMENT.findall(text) if not (root / each).exists()),
        ]

    for path in files:
        name = str(path.relative_to(root))
        if path.suffix == ".py":
            # Most files have no citation; a text outside comments and docstrings may have one.
            text = path.read_text(encoding="utf-8")
            found[name] += lost(words(text)) if lost(text) else []
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            found[name] += [to for to in LINK.findall(text) if not (path.parent / to).exists()]
            found[name] += lost(text)
    found["docs/requirements.md"] += [
        each
        for each in CODE.findall(requirements)
        if each not in tests
        and not (root / each).exists()
        and not (root / "storage_engine" / each).exists()
    ]
    return {name: each for name, each in found.items() if each}


def budgeted(name: Path) -> str | None:
    """Return the package whose budget a file counts in; None for generated files and tests."""
    if "tests" in name.parts or name.name == "conftest.py" or str(name.parent) == GENERATED:
        return None
    if name.parts[0] == "storage_engine":
        return "/".join(name.parts[: 2 if len(name.parts) > 2 else 1])
    return name.parts[0] if name.parts[0] in (*PRODUCT, *BESIDE) else None


def unchecked(nodes: Collection[ast.AST], text: str) -> int:
    """Return how often a module gives up its types: `Any`, `cast`, `object` in an annotation, and
    `type: ignore`."""
    count = len(re.findall(r"#\s*type:\s*ignore", text))
    for node in nodes:
        if isinstance(node, ast.Name) and node.id == "Any":
            count += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            count += node.func.id == "cast"
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            count += _objects(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            count += _objects(node.returns)
    return count


def _objects(annotation: ast.expr) -> int:
    names = (node for node in ast.walk(annotation) if isinstance(node, ast.Name))
    return sum(name.id == "object" for name in names)


def pronouns(nodes: Collection[ast.AST]) -> int:
    """How many docstrings begin with a pronoun instead of naming their subject."""
    texts = (
        node.value.value
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    return sum(isinstance(text, str) and PRONOUN.match(text) is not None for text in texts)


def wide_cells(path: Path) -> int:
    """The number of cells of tables that are too long to be read in one."""
    rows = [line for line in path.read_text(encoding="utf-8").split("\n") if line[:1] == "|"]
    cells = (cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row))
    return sum(len(cell) > WIDEST_CELL for cell in cells)


def imported(nodes: Iterable[ast.AST], modules: Set[str]) -> set[str]:
    """Return the modules of the product that a module imports, wherever in its text."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts if parts <= modules else {*parts, node.module}
    return found & modules


def circles(imports: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return a group of modules that import one another in a circle, where there is one."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []


def tested(root: Path, files: Collection[Path]) -> tuple[int, int]:
    """Count the modules that have a test of their name, `test_<module>.py` or
    `test_<module>_<aspect>.py`, and all modules. Generated ones don't count."""
    names = [path.relative_to(root) for path in files if path.suffix == ".py"]
    tests: defaultdict[str, set[str]] = defaultdict(set)
    modules: list[Path] = []
    for name in names:
        if name.name.startswith("test_"):
            tests[name.parts[0]].add(name.stem.removeprefix("test_") + "_")
        elif budgeted(name) is not None and name.name != "__init__.py" and name.parts[0] != ".ci":
            modules.append(name)
    found = 0
    for name in modules:
        near = tests[name.parts[0]] | tests["integration_tests"]
        near |= tests["storage_engine"] if name.parts[0] == "benchmarks" else set()
        found += any(each.startswith(f"{name.stem}_") for each in near)
    return found, len(modules)


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield (name, lines) of each. Only statements are searched: they alone hold functions."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())


def documents(root: Path, files: Collection[Path]) -> dict[str, Mapping[str, int]]:
    """The sizes that documents are held to."""
    return {
        "DESIGN.md bytes": {
            str(path.relative_to(root)): path.stat().st_size
            for path in files
            if path.name == "DESIGN.md"
        },
        "lines of documents": {
            name: (root / name).read_text(encoding="utf-8").count("\n")
            for name in ("README.md", "CHANGELOG.md", "docs/measurements.md")
        },
        "wide cells of tables, by document": {
            str(path.relative_to(root)): count
            for path in files
            if path.suffix == ".md" and (count := wide_cells(path))
        },
    }


Figure = int | list[int] | list[list[str]] | Mapping[str, int | list[str]]


def figures(root: Path) -> dict[str, Figure]:
    """Return the figures by name, worst first where there is an order."""
    files = [path for path in tracked(root) if path.exists()]
    entries: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    long_files: dict[str, int] = {}
    long_functions: dict[str, int] = {}
    classes: defaultdict[str, list[str]] = defaultdict(list)
    any_in_ports = 0
    packages: Counter[str] = Counter()
    untyped: Counter[str] = Counter()
    unnamed: Counter[str] = Counter()
    imports: dict[str, list[ast.AST]] = {}
    for path in [path for path in files if path.suffix == ".py"]:
        name = path.relative_to(root)
        text = path.read_text(encoding="utf-8")
        count = text.count("\n")
        entries[str(name.parent)] += 1
        is_test = "tests" in name.parts or name.parts[0] == "integration_tests"
        lines["tests" if is_test else name.parts[0]] += count
        if is_test:
            continue
        if count > LONG_FILE:
            long_files[str(name)] = count
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        package = budgeted(name)
        packages[package or "generated"] += count
        if package is not None:
            untyped[package] += unchecked(nodes, text)
            unnamed[str(name)] = pronouns(nodes)
        module = ".".join(name.with_suffix("").parts).removesuffix(".__init__")
        imports[module] = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
        for function, length in functions(tree):
            if length > LONG_FUNCTION:
                long_functions[f"{name}:{function}"] = length
        if name.parts[0] not in PRODUCT:
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(name))
        is_port = name.name in ("ports.py", "event_loop_ports.py")
        any_in_ports += len(re.findall(r"\bAny\b", text)) if is_port else 0
    return {
        "lines": dict(lines.most_common()),
        "product lines by package": dict(packages.most_common()),
        "Any, cast, object and type: ignore by package": dict(untyped.most_common()),
        "circles of imports": circles(
            {name: imported(nodes, imports.keys()) for name, nodes in imports.items()}
        ),
        "folders above 22 entries": _above(entries, MOST_ENTRIES),
        "files above 500 lines": _sorted(long_files),
        "functions above 60 lines": _sorted(long_functions),
        "class names twice": {k: v for k, v in sorted(classes.items()) if len(v) > 1},
        "Any in ports": any_in_ports,
        "citations that lead nowhere, by file": unresolved(root),
        **documents(root, files),
        "modules with a test of their name, and all": list(tested(root, files)),
        "docstrings that begin with a pronoun, by file": dict((+unnamed).most_common()),
    }


def _above(counts: Counter[str], most: int) -> dict[str, int]:
    return {name: count for name, count in counts.most_common() if count > most}


def _sorted(found: dict[str, int]) -> dict[str, int]:
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    args = parser.parse_args()
    found = figures(args.root.resolve())
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{name}: {len(value)}")
            for key, each in value.items():
                print(f"    {each if isinstance(each, int) else len(each):>7}  {key}")
        else:
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
