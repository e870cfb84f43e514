"""A page in headless Chromium: what it draws, what it asks for, and a person's hands."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")
# No name is looked up, and the browser asks for nothing of its own.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--window-size=1000,1200", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
# Keeps the view that the page makes, before any script of the page runs.
_KEEP_VIEW = """
    let embed;
    Object.defineProperty(window, 'vegaEmbed', {
        set(f) { embed = f; },
        get() {
            return (...given) => embed(...given).then(made => { window.view = made.view; });
        },
    });
"""
_CELLS = """
    const found = {};
    function visit(item, x, y) {
        const name = item.mark && item.mark.name;
        x += item.x || 0;
        y += item.y || 0;
        if (name && name.endsWith('_cell'))
            found[name] = [x, y, item.width, item.height];
        for (const mark of item.items || [])
            if (mark.marktype === 'group')
                for (const inner of mark.items) visit(inner, x, y);
    }
    const [x, y] = view.origin(), margin = view.padding();
    for (const item of view.scenegraph().root.items) visit(item, x + margin.left, y + margin.top);
    return found;
"""


def chromium() -> Any:
    """A driver of Chromium; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(60)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _KEEP_VIEW})
    return driver


class Page:
    """A page with a Vega chart.

    Args:
        driver: from `chromium`.
        path: the file.
    """

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        self.complaints()
        self.requests()
        driver.get(path.as_uri())
        self._wait(lambda: driver.execute_script("return window.view !== undefined"))

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What has been asked for since the last call, by its address."""
        messages = [json.loads(entry["message"])["message"]
                    for entry in self.driver.get_log("performance")]  # fmt: skip
        return [message["params"]["request"]["url"] for message in messages
                if message["method"] == "Network.requestWillBeSent"]  # fmt: skip

    def svg(self) -> str:
        """What is drawn now."""
        done = "const done = arguments[0]; view.runAsync().then(() => view.toSVG()).then(done)"
        return self.driver.execute_async_script(done)

    def texts(self) -> list[str]:
        """The texts that are drawn now."""
        return re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</", self.svg())

    def dots(self, colour: str) -> int:
        """How many dots are drawn in a colour."""
        return len(re.findall(rf'<path [^>]*fill="{colour}" stroke-width="0"', self.svg()))

    def cells(self) -> dict[str, tuple[float, float, float, float]]:
        """Name to left, top, width and height of the panels."""
        return {name: tuple(cell) for name, cell in self.driver.execute_script(_CELLS).items()}

    def choose(self, name: str, text: str) -> None:
        """Choose from a menu."""
        from selenium.webdriver.support.ui import Select

        Select(self.driver.find_element("name", name)).select_by_visible_text(text)

    def type(self, name: str, text: str) -> None:
        """Type into a field."""
        self.driver.find_element("name", name).send_keys(text)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw with the mouse from one place of the picture to another."""
        actions, corner = self._mouse()
        across, down = (round(b - a) for a, b in zip(start, end, strict=True))
        actions.move_to_element_with_offset(*corner(start)).click_and_hold()
        actions.move_by_offset(across // 2, down // 2)
        actions.move_by_offset(across - across // 2, down - down // 2).release().perform()

    def point(self, place: tuple[float, float]) -> str:
        """Point at a place of the picture; gives the text of the tooltip."""
        actions, corner = self._mouse()
        actions.move_to_element_with_offset(*corner(place)).perform()
        self._wait(lambda: self.driver.find_elements("css selector", "#vg-tooltip-element.visible"))
        return self.driver.find_element("id", "vg-tooltip-element").text

    def until(self, holds: Any) -> None:
        """Wait until something holds, which inputs bring about with a delay."""
        self._wait(holds)

    def _mouse(self) -> Any:
        from selenium.webdriver import ActionChains

        canvas = self.driver.find_element("css selector", "#vis canvas")
        width, height = canvas.size["width"], canvas.size["height"]

        def corner(place: tuple[float, float]) -> tuple[Any, int, int]:
            # The driver counts from the element's middle.
            return canvas, round(place[0] - width // 2), round(place[1] - height // 2)

        return ActionChains(self.driver), corner

    def _wait(self, holds: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60).until(lambda _: holds())
