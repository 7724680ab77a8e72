"""Headless Chromium and axe-core, where they are installed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell", "chrome")
_AXE = REPOSITORY / "outputs" / "pages" / "node_modules" / "axe-core" / "axe.min.js"


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser; skip the test with the reason where there is none."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: make pages-test"
    )
    with api.sync_playwright() as started:
        own = Path(started.chromium.executable_path)
        path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
        if path is None and not own.exists():
            pytest.skip("no Chromium: install it, or name the program in CHROMIUM")
        running = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def axe_script() -> str:
    """Return axe-core's source; skip the test with the reason where it is not installed."""
    path = Path(os.environ.get("AXE", _AXE))
    if not path.is_file():
        pytest.skip("no axe-core: make pages-test installs it, or name axe.min.js in AXE")
    return path.read_text(encoding="utf-8")
