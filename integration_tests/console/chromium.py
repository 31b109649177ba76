"""Debian's Chromium without a window, driven by Selenium, and what the tests ask of a page."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

Value = TypeVar("Value")

WIDE = (1440, 900)
PHONE = (390, 844)
PATIENCE_S = 60.0
SWITCHES = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--lang=en-GB",
    # A root, as continuous integration has it, can't have Chromium's own sandbox.
    "--no-sandbox",
)
_GO_TO = """
const [address, done] = arguments;
addEventListener("hashchange", () => setTimeout(done), {once: true});
location.hash = address;
"""
_PAUSE_S = 0.15
"""To look at a page takes the browser some of the processor."""
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
"""Of axe-core."""


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason=f"THE CONSOLE'S PAGES ARE NOT TESTED: chromium is {BROWSER}, chromedriver is {DRIVER}; "
    "install Debian's packages chromium and chromium-driver, as .ci/set-up does for root",
)


def until(condition: Callable[[], Value], what: str, *, timeout_s: float = PATIENCE_S) -> Value:
    """The first true value of `condition`; AssertionError with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(_PAUSE_S)
    return value


@cache
def axe() -> str:
    """The program that checks a page for accessibility."""
    import axe_core_python

    return (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()


class Chromium:
    """One window on the console at `address`, such as `http://127.0.0.1:8080`."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        self.address = address
        self.show(WIDE)

    def show(
        self, size: tuple[int, int], *, dark: bool = False, mobile: bool | None = None
    ) -> None:
        """The size of the window, and the scheme of the system."""
        self._size, self._dark = size, dark
        width, height = size
        self._tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == PHONE if mobile is None else mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", features=[scheme])

    def _tell(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def open(self, route: str, *, wait_for: str | None = None) -> None:
        """A screen, such as `topics/flights?from=earliest`; returns when it shows what it has asked
        the server for, and `wait_for`."""
        address = f"{self.address}/#/{route}"
        here = self.driver.current_url
        if here.startswith(f"{self.address}/#/") and here != address:
            self.driver.execute_async_script(_GO_TO, f"#/{route}")
        else:
            self.driver.get(address)
        until(lambda: self.find("main h1"), f"{route} has a title")
        if wait_for is not None:
            self.wait_for_text(wait_for)

    def find(self, css: str) -> WebElement | None:
        found = self.driver.find_elements(By.CSS_SELECTOR, css)
        return found[0] if found else None

    def element(self, css: str) -> WebElement:
        """Waits for it."""
        found = until(lambda: self.find(css), f"{css} is there")
        assert found is not None
        return found

    def text(self, css: str = "body") -> str:
        """As it is seen; empty where there is no such element."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def wait_for_text(self, text: str, *, css: str = "body", timeout_s: float = PATIENCE_S) -> None:
        try:
            until(lambda: text in self.text(css), f"“{text}”", timeout_s=timeout_s)
        except AssertionError:
            raise AssertionError(f"no “{text}” in:\n{self.text(css)}") from None

    def wait_for_no_text(
        self, text: str, *, css: str = "body", timeout_s: float = PATIENCE_S
    ) -> None:
        try:
            until(lambda: text not in self.text(css), f"no “{text}”", timeout_s=timeout_s)
        except AssertionError:
            raise AssertionError(f"still “{text}” in:\n{self.text(css)}") from None

    def press(self, name: str, *, within: str = "body") -> None:
        """The button or link with this name."""
        path = f".//*[self::button or self::a][normalize-space()={_quoted(name)}]"

        def pressed() -> bool:
            try:
                place = self.driver.find_element(By.CSS_SELECTOR, within)
                place.find_element(By.XPATH, path).click()
            except WebDriverException:
                return False
            return True

        until(pressed, f"“{name}” can be pressed")

    def write(self, label: str, text: str, *, within: str = "body") -> None:
        """Text in the place of what the field with this label holds."""
        field = self.field(label, within=within)
        field.clear()
        field.send_keys(text)

    def choose(self, label: str, text: str, *, within: str = "body") -> None:
        option = f".//option[normalize-space()={_quoted(text)}]"
        self.field(label, within=within).find_element(By.XPATH, option).click()

    def field(self, label: str, *, within: str = "body") -> WebElement:
        path = f".//label[starts-with(normalize-space(), {_quoted(label)})]"

        def found() -> WebElement | None:
            for each in self.driver.find_element(By.CSS_SELECTOR, within).find_elements(
                By.XPATH, path
            ):
                if each.is_displayed():
                    by_id = each.get_attribute("for")
                    inside = each.find_elements(By.CSS_SELECTOR, "input, select, textarea")
                    return inside[0] if by_id is None else self.find(f'[id="{by_id}"]')
            return None

        field = until(found, f"a field “{label}”")
        assert field is not None
        return field

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that the script returns; it runs as the developer's tools do."""
        return self.driver.execute_script(script, *arguments)

    def imported(self, module: str, expression: str) -> Any:
        """What an expression of a module `m` of the page gives."""
        return self.driver.execute_async_script(
            "const [path, done] = arguments; import(path)"
            f".then((m) => ({{value: {expression}}})).then(done, (e) => done({{e: `${{e}}`}}));",
            f"/static/js/{module}",
        )["value"]

    def violations(self, *, only: tuple[str, ...] = ()) -> list[str]:
        """What axe-core has against the page, by these of its rules or all: a line each, with the
        first element that it names."""
        answer = self._tell(
            "Runtime.evaluate",
            expression=f"{self._axe()}axe.run(document, {json.dumps(_axe_options(only))})"
            ".then((result) => JSON.stringify(result.violations))",
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
            for each in json.loads(answer["result"]["value"])
        ]

    def _axe(self) -> str:
        """The program, where the page does not have it yet."""
        return "" if self.run("return 'axe' in window") else f"{axe()};"

    def complaints(self) -> list[str]:
        """What the browser has logged since it was asked last: errors of scripts, breaches of the
        content security policy. Answers of the server that are errors are none."""
        return [
            line["message"]
            for line in self.driver.get_log("browser")
            if line["level"] == "SEVERE" and "Failed to load resource" not in line["message"]
        ]

    def loaded(self) -> list[str]:
        """The addresses of all that the page has loaded."""
        found: list[str] = self.run(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        return found

    def picture(self, path: Path) -> None:
        """Of the whole page, up to 1,800 pixels high, and no higher than what it shows."""
        width, height = self.run(
            "const main = document.querySelector('main').getBoundingClientRect();"
            "return [innerWidth, Math.ceil(main.bottom + scrollY) - 24]"
        )
        size = self._size
        self.show((width, min(1800, height)), dark=self._dark, mobile=size == PHONE)
        time.sleep(0.5)  # charts are drawn anew
        path.write_bytes(_small_png(self.driver.get_screenshot_as_base64()))
        self.show(size, dark=self._dark)


def _axe_options(only: tuple[str, ...]) -> dict[str, Any]:
    which = {"type": "rule", "values": only} if only else {"type": "tag", "values": RULES}
    return {"runOnly": which, "resultTypes": ["violations"]}


def _small_png(data: str) -> bytes:
    """With a palette: a third of the bytes, and the colours of charts are kept."""
    import base64
    import io

    from PIL import Image

    small = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    few = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(small, "PNG", optimize=True)
    return small.getvalue()


def _quoted(text: str) -> str:
    """A text of XPath."""
    assert '"' not in text
    return f'"{text}"'


@contextlib.contextmanager
def open_chromium(folder: Path, address: str) -> Iterator[Chromium]:
    """A browser of its own, whose profile is in `folder`; it has ended after the block."""
    assert BROWSER is not None and DRIVER is not None, "mark the test: needs_browser"
    options = Options()
    options.binary_location = BROWSER
    for switch in (*SWITCHES, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = Chrome(options=options, service=Service(DRIVER))
    try:
        yield Chromium(window, address)
    finally:
        window.quit()
