"""Chromium without a window, for tests of pages."""

import base64
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def chromium():
    """A browser under Selenium; the test is skipped where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium or chromedriver; apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for name in ("headless=new", "hide-scrollbars", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{name}")
    if os.geteuid() == 0:  # its sandbox refuses to run as root, as in a container
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield window
    finally:
        window.quit()


def show(window, path: Path, width: int, height: int, scheme: str) -> None:
    """Open a file on a screen of this size, light or dark."""
    narrow = width < 600
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": narrow}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    window.get(path.resolve().as_uri())


def screenshot(window, path: Path) -> None:
    """What the screen shows, as PNG."""
    shot = window.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(shot["data"]))
