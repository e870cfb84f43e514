"""A page in headless Chromium: its contents, its requests, and mouse input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")
# No host name resolves, and the browser makes no requests of its own.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


def chromium() -> Any:
    """Start a driver of Chromium; the test is skipped if it is not installed."""
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
    return driver


class Page:
    """A page in a browser.

    Args:
        driver: result of `chromium`.
        path: HTML file.
        width: width of the window in pixels.
        dark: whether the browser asks for dark colours.
    """

    def __init__(self, driver: Any, path: Path, width: int = 1000, dark: bool = False) -> None:
        self.driver = driver
        self.complaints()
        self.requests()
        size = {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(path.as_uri())

    def complaints(self) -> list[str]:
        """Messages on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses requested since the last call."""
        messages = [json.loads(entry["message"])["message"]
                    for entry in self.driver.get_log("performance")]  # fmt: skip
        return [message["params"]["request"]["url"] for message in messages
                if message["method"] == "Network.requestWillBeSent"]  # fmt: skip

    def script(self, text: str) -> Any:
        """The value of a JavaScript expression."""
        return self.driver.execute_script(f"return {text}")

    def all(self, selector: str) -> list[Any]:
        """The visible elements that match a CSS selector."""
        found = self.driver.find_elements("css selector", selector)
        return [element for element in found if element.is_displayed()]

    def texts(self, selector: str) -> list[str]:
        """The texts of the visible elements that match a CSS selector."""
        return [element.text for element in self.all(selector)]

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        (element,) = self.all(selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        box = self.driver.execute_script(
            "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
            element,
        )
        return tuple(box)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag the mouse from one point of the window to another."""
        mouse = self._mouse()
        mouse.pointer_action.move_to_location(*map(round, start)).pointer_down()
        mouse.pointer_action.move_to_location(*map(round, end)).pointer_up()
        mouse.perform()

    def point(self, place: tuple[float, float]) -> None:
        """Move the mouse to a point of the window."""
        mouse = self._mouse()
        mouse.pointer_action.move_to_location(*map(round, place))
        mouse.perform()

    def _mouse(self) -> Any:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        return ActionBuilder(self.driver, duration=50)
