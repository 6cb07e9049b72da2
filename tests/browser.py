"""A headless Chromium for the tests that open pages; `python tests/browser.py` installs one.

Playwright's own download is tried first, then the package of the system if this program runs as
root.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Parallel coordinates need WebGL, which software renders if there is no GPU.
# The sandbox needs user namespaces, which a container does not have.
OPTIONS = ["--enable-unsafe-swiftshader", "--no-sandbox"]


def executable() -> str | None:
    """Path of a browser: playwright's own, else the system's; None if there is none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def browser(path: str) -> Iterator[Any]:
    """Start a browser and end it with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield running
        finally:
            running.close()


def install() -> str | None:
    """Install a browser if there is none; its path, or None if that fails."""
    if found := executable():
        return found
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        attempts += [
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-yq", "--no-install-recommends", "chromium"],
        ]
    for command in attempts:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=240)
        if command[1] != "update" and (found := executable()):
            return found
    return None


if __name__ == "__main__":
    path = install()
    print(
        "browser for the tests:",
        path or "none could be installed; tests that open pages are skipped",
    )
