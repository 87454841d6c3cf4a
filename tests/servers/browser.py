"""A real browser: Debian's chromium, or playwright's own where `make servers` could only have that."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

from .processes import SERVERS

__all__ = ["chromium"]

BROWSERS = SERVERS / "browsers"


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Fails, and does not skip, if the machine has none."""
    found = shutil.which("chromium")
    if found is None:
        assert any(BROWSERS.glob("chromium*")), "there is no chromium here: run `make servers`"
        os.environ["PLAYWRIGHT_BROWSERS_PATH"] = str(BROWSERS)
    # As root chromium has no sandbox of its own, and will not start without being told so.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
