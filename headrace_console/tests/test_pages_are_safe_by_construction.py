"""What the files of the console's pages must hold to, whatever a browser makes of them: they load
nothing from elsewhere, and no line of them makes markup of data. Source: R-PAGE1, R-PAGE2."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace_console
from headrace_console.http.guard import MOST_BODY_BYTES

STATIC = Path(headrace_console.__file__).parent / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
STYLES = sorted(STATIC.rglob("*.css"))
LONGEST = 500
MAKES_MARKUP = re.compile(
    r"\.innerHTML|\.outerHTML\s*=|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|DOMParser|\beval\(|new Function|setHTML|srcdoc\s*="
)
ELSEWHERE = re.compile(r"(?:https?:)?//[\w-]+\.[\w.-]+")
NAMES_ONLY = "http://www.w3.org/2000/svg"
"""A name space, which nobody loads."""
IMPORTED = re.compile(r'^import [^;"]*"([^"]+)";$', re.MULTILINE)


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(STATIC)) for path in paths]


@pytest.mark.parametrize("path", SCRIPTS, ids=names(SCRIPTS))
def test_a_script_makes_no_markup_of_data(path):
    assert MAKES_MARKUP.findall(path.read_text(encoding="utf-8")) == []


def test_nothing_is_loaded_from_elsewhere():
    files = [*SCRIPTS, *STYLES, *STATIC.glob("*.html"), *STATIC.glob("*.svg")]
    found = {
        str(path.relative_to(STATIC)): ELSEWHERE.findall(
            path.read_text(encoding="utf-8").replace(NAMES_ONLY, "")
        )
        for path in files
    }
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_the_page_has_no_script_and_no_style_in_its_text():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", page) == []
    assert re.findall(r"<style|\bstyle=|\bon\w+=", page) == []


def test_every_file_that_is_named_is_there():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = [STATIC / name for name in re.findall(r"/static/([\w./-]+)", page)]
    named += [
        path.parent / name
        for path in SCRIPTS
        for name in IMPORTED.findall(path.read_text(encoding="utf-8"))
    ]
    assert [path for path in named if not path.is_file()] == []


def test_every_script_is_reached_from_the_page():
    def reached(path: Path, seen: set[Path]) -> set[Path]:
        seen.add(path)
        for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
            other = (path.parent / name).resolve()
            if other not in seen:
                reached(other, seen)
        return seen

    assert reached((STATIC / "js" / "app.js").resolve(), set()) == {
        path.resolve() for path in SCRIPTS
    }


def unused_names(path: Path) -> Iterator[str]:
    """Names that a script imports and does not use."""
    text = path.read_text(encoding="utf-8")
    for statement in re.findall(r"^import \{([^}]+)\} from", text, re.MULTILINE):
        for name in (each.strip() for each in statement.split(",")):
            if name and len(re.findall(rf"\b{re.escape(name)}\b", text)) == 1:
                yield name


def test_no_script_imports_what_it_does_not_use():
    found = {str(path.relative_to(STATIC)): list(unused_names(path)) for path in SCRIPTS}
    assert {name: unused for name, unused in found.items() if unused} == {}


def test_no_file_is_longer_than_one_can_read():
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in [*SCRIPTS, *STYLES]
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_both_schemes_define_the_same_colours():
    css = (STATIC / "css" / "base.css").read_text(encoding="utf-8")
    light, chosen, system = (
        set(re.findall(r"(--[\w-]+):", block))
        for block in re.findall(r":root[^{]*\{(.*?)\}", css, re.DOTALL)
    )
    assert chosen == system
    assert chosen == light - {"--words", "--data"}


def test_the_package_has_every_file():
    """A wheel holds what these patterns find."""
    import configparser

    settings = configparser.ConfigParser()
    settings.read(STATIC.parents[1] / "setup.cfg")
    patterns = settings["options.package_data"]["headrace_console"].split()
    packed = {path for pattern in patterns for path in STATIC.parent.glob(pattern)}
    missing = {path for path in STATIC.rglob("*") if path.is_file()} - packed
    assert missing == set()


def test_the_page_knows_how_much_the_server_takes():
    assert f"MOST_BYTES = {MOST_BODY_BYTES >> 20} << 20;" in (STATIC / "js/lib/api.js").read_text()
