"""Links, commands and code of the documents are right as far as that shows without a cluster; the
tests that run them: `test_readme.py`, `test_clients_document.py`, `test_spark_documents.py`."""

import argparse
import ast
import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.tools.cli import COMMANDS

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", *(f"{each}/*" for each in ("storage_engine", ".")), "benchmarks")
    for path in ROOT.glob(f"{folder}/*.md")
    if ".venv" not in path.parts
)
PLACEHOLDER = re.compile(r"^(?:…|\.\.\.|[A-Z]{1,2}(?::[A-Z])?|NAME)$")
"""In a command, what stands for a value of the reader's."""
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def blocks(document: Path, language: str) -> Iterator[str]:
    text = document.read_text(encoding="utf-8")
    for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1]


def commands() -> Iterator[tuple[str, str]]:
    """(document, command line) of each `headrace …` in a block or in running text."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        lines = [line for block in blocks(document, "") for line in block.splitlines()]
        inline = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
        lines += [" ".join(each.split()) for each in inline]
        lines += re.findall(r"^    +(\S.*)$", BLOCK.sub("", text).replace("\\\n", ""), re.MULTILINE)
        for line in lines:
            command = re.sub(r"^.*\| (?=headrace)|^\.venv/bin/|[\[\]]", "", line)
            is_list = " | " in command or command == "headrace COMMAND"
            if command.startswith("headrace ") and not is_list:
                yield str(document.relative_to(ROOT)), command.partition("  #")[0]


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", BLOCK.sub("", document.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def ask_for_nothing(parser: argparse.ArgumentParser) -> None:
    """A document may leave out arguments that the command needs."""
    for group in parser._mutually_exclusive_groups:
        group.required = False
    for action in parser._actions:
        action.required = False
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                ask_for_nothing(each)


def problem_of(command: str) -> str | None:
    """Why the command line `headrace …` is not one, as far as the document gives it."""
    _, name, *arguments = shlex.split(command)
    if name.startswith("-"):
        return None
    found = next((each for each in COMMANDS if each.name == name), None)
    if found is None:
        return "there is no such command"
    parser = argparse.ArgumentParser(allow_abbrev=False)
    found.load().add_arguments(parser)
    ask_for_nothing(parser)
    problems: list[str] = []

    def note(_parser: argparse.ArgumentParser, message: str) -> None:
        problems.append(message)
        raise SystemExit(2)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(argparse.ArgumentParser, "error", note)
        parser.parse_args([each for each in arguments if not PLACEHOLDER.match(each)])
    return next((each for each in problems if "expected one argument" not in each), None)


def test_every_link_leads_to_a_file_and_a_heading():
    wrong = []
    for document in DOCUMENTS:
        for path, anchor in re.findall(
            r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", document.read_text("utf-8")
        ):
            target = document.parent / path if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{document.relative_to(ROOT)}: {path}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize(("document", "command"), sorted(set(commands())))
def test_every_command_has_the_arguments_that_the_document_gives_it(document, command):
    assert problem_of(command) is None, document


def test_a_wrong_command_is_noticed():
    assert problem_of("headrace topic list") == "there is no such command"
    assert problem_of("headrace topics describe x --partition 3") is not None
    assert problem_of("headrace topics rename x") is not None


def test_every_target_of_make_is_there():
    named = {
        (str(document.relative_to(ROOT)), target)
        for document in DOCUMENTS
        for target in re.findall(r"(?:`|^)make ([\w.-]+)", document.read_text("utf-8"), re.M)
    }
    missing = [
        each
        for each in sorted(named)
        if subprocess.run(["make", "-n", each[1]], cwd=ROOT, capture_output=True).returncode
    ]
    assert named
    assert missing == []


def test_every_module_that_is_started_is_there():
    named = {
        module.replace(".", "/")
        for document in DOCUMENTS
        for module in re.findall(r"python -m ((?:\w+\.)+\w+)", document.read_text("utf-8"))
    }
    assert named
    assert [each for each in sorted(named) if not (ROOT / f"{each}.py").is_file()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_of_python_is_valid(document):
    for block in blocks(document, "python"):
        code = block.replace(")…", ")")
        compile(code, document.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
